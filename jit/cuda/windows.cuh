// Device functions of convolutions: windows that move over images, as the columns of a matrix. The rules of prelude.cuh
// hold, whose continuation this is.

// A matrix with a column for each window and a row for each of its elements: row k is tap k % taps of channel k / taps, or,
// where there are `channels` of an image, channel k % channels of tap k / channels. It is nowhere in memory. There are three directions, taps of each at most 32; those not needed have one tap and size 1. What
// lies outside of the image is `outside`.
template <class T, int taps0, int taps1, int taps2, int channels = 0>
struct hd_windows {
  static constexpr int all_taps = taps0 * taps1 * taps2;
  static constexpr bool few = all_taps <= 32;
  // A window: where it begins in memory, perhaps outside of its image, and a bit for each of its taps that lies inside; of
  // more than 32 for each direction one.
  struct Column {
    long long at;
    unsigned int inside[few ? 1 : 3];
  };
  struct Tap {
    long long at;
    int number[3];
    unsigned int of_all;
  };
  const T* images;
  long long image_stride, channel_stride;
  long long first;     // number of the window that column 0 is
  long long count[3];  // windows of an image
  long long size[3];   // of an image
  long long memory[3]; // from one element to the next
  long long stride[3], pad[3], dilation[3];
  T outside;
  static __device__ __forceinline__ constexpr int taps(int d) { return d == 0 ? taps0 : d == 1 ? taps1 : taps2; }
  // Column `number`; all of one that does not exist lies outside.
  __device__ __forceinline__ Column column(long long number, bool exists) const {
    Column made;
    unsigned int inside[3];
    long long rest = first + number;
    made.at = 0;
#pragma unroll
    for (int d = 2; d >= 0; --d) {
      const long long begin = rest % count[d] * stride[d] - pad[d];
      rest /= count[d];
      made.at += begin * memory[d];
      inside[d] = 0;
#pragma unroll
      for (int t = 0; t < taps(d); ++t) {
        const long long position = begin + t * dilation[d];
        if (exists && position >= 0 && position < size[d]) inside[d] |= 1u << t;
      }
    }
    made.at += rest * image_stride;
    if constexpr (few) {
      made.inside[0] = 0;
#pragma unroll
      for (int t = 0; t < all_taps; ++t) {
        const int at0 = t / (taps1 * taps2), at1 = t / taps2 % taps1, at2 = t % taps2;
        made.inside[0] |= (inside[0] >> at0 & inside[1] >> at1 & inside[2] >> at2 & 1u) << t;
      }
    } else {
#pragma unroll
      for (int d = 0; d < 3; ++d) made.inside[d] = inside[d];
    }
    return made;
  }
  // Row k.
  __device__ __forceinline__ Tap tap(unsigned int k) const {
    unsigned int of_channel, channel;
    if constexpr (channels == 0) {
      of_channel = k % (unsigned int)all_taps;
      channel = k / (unsigned int)all_taps;
    } else {
      of_channel = k / channels;
      channel = k % channels;
    }
    Tap made;
    made.of_all = of_channel;
    made.number[0] = (int)(of_channel / (taps1 * taps2));
    made.number[1] = (int)(of_channel / taps2 % taps1);
    made.number[2] = (int)(of_channel % taps2);
    made.at = channel * channel_stride;
#pragma unroll
    for (int d = 0; d < 3; ++d) made.at += made.number[d] * (dilation[d] * memory[d]);
    return made;
  }
  static __device__ __forceinline__ bool is_inside(const Column& column, const Tap& tap) {
    if constexpr (few) {
      return (column.inside[0] >> tap.of_all & 1u) != 0;
    } else {
      return (column.inside[0] >> tap.number[0] & column.inside[1] >> tap.number[1] &
              column.inside[2] >> tap.number[2] & 1u) != 0;
    }
  }
  __device__ __forceinline__ T element(const Column& column, const Tap& tap) const {
    return is_inside(column, tap) ? images[column.at + tap.at] : outside;
  }
  // Whether taps of windows, whose channels are neighbours, begin at multiples of 16 bytes.
  __device__ __forceinline__ bool is_wide() const {
    const long long strides = image_stride | memory[0] | memory[1] | memory[2];
    return hd_is_wide(images, strides);
  }
  // Brings 16 bytes of neighbouring channels, asynchronously where they are `wide` and outside there are zeros.
  __device__ __forceinline__ void fetch(hd_sixteen* to, const Column& column, const Tap& tap, bool exists, bool wide) const {
    const bool there = exists && is_inside(column, tap);
    unsigned int filler = 0;
    if constexpr (sizeof(T) == 1) filler = (unsigned char)outside * 0x01010101u;
    if (wide && (there || filler == 0)) {
      hd_copy_async(to, there ? images + (column.at + tap.at) : images, there ? 16u : 0u);
    } else if (wide) {
      *to = hd_sixteen{{filler, filler, filler, filler}};
    } else {
      T* const elements = (T*)to;
#pragma unroll 1
      for (int e = 0; e < 16 / (int)sizeof(T); ++e)
        elements[e] = there ? images[column.at + tap.at + e] : outside;
    }
  }
};
