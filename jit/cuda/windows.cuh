// Device functions of convolutions: windows that move over images, as the columns of a matrix. The rules of prelude.cuh
// hold, whose continuation this is.

// A matrix with a column for each window and a row for each of its elements: row k is tap k % taps of channel k / taps. It
// is nowhere in memory. There are three directions, taps of each at most 32; those not needed have one tap and size 1. What
// lies outside of the image is `outside`.
template <class T, int taps0, int taps1, int taps2>
struct hd_windows {
  // A window: where it begins in memory, perhaps outside of its image, and for each direction a bit for each of its taps
  // that lies inside.
  struct Column {
    long long at;
    unsigned int inside[3];
  };
  struct Tap {
    long long at;
    int number[3];
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
    long long rest = first + number;
    made.at = 0;
#pragma unroll
    for (int d = 2; d >= 0; --d) {
      const long long begin = rest % count[d] * stride[d] - pad[d];
      rest /= count[d];
      made.at += begin * memory[d];
      made.inside[d] = 0;
#pragma unroll
      for (int t = 0; t < taps(d); ++t) {
        const long long position = begin + t * dilation[d];
        if (exists && position >= 0 && position < size[d]) made.inside[d] |= 1u << t;
      }
    }
    made.at += rest * image_stride;
    return made;
  }
  // Row k.
  __device__ __forceinline__ Tap tap(unsigned int k) const {
    constexpr unsigned int all = taps0 * taps1 * taps2;
    const unsigned int of_channel = k % all;
    Tap made;
    made.number[0] = (int)(of_channel / (taps1 * taps2));
    made.number[1] = (int)(of_channel / taps2 % taps1);
    made.number[2] = (int)(of_channel % taps2);
    made.at = k / all * channel_stride;
#pragma unroll
    for (int d = 0; d < 3; ++d) made.at += made.number[d] * (dilation[d] * memory[d]);
    return made;
  }
  __device__ __forceinline__ T element(const Column& column, const Tap& tap) const {
    const unsigned int inside = column.inside[0] >> tap.number[0] & column.inside[1] >> tap.number[1] &
                                column.inside[2] >> tap.number[2] & 1u;
    return inside != 0 ? images[column.at + tap.at] : outside;
  }
};
