// 8-bit floats. The rules of prelude.cuh hold, whose continuation this is.

// A sign, exponents of `bias`, so many bits of mantissa; `largest` is the code of the largest number, `beyond` of what is
// larger. Where -0 would be is the only NaN if there is one zero.
struct hd_f8e4m3fn {
  unsigned char bits;
  static constexpr int mantissa = 3, bias = 7;
  static constexpr unsigned int largest = 0x7e, beyond = 0x7f, nan = 0x7f;
  static constexpr bool one_zero = false;
};

struct hd_f8e4m3fnuz {
  unsigned char bits;
  static constexpr int mantissa = 3, bias = 8;
  static constexpr unsigned int largest = 0x7f, beyond = 0x80, nan = 0x80;
  static constexpr bool one_zero = true;
};

struct hd_f8e5m2 {
  unsigned char bits;
  static constexpr int mantissa = 2, bias = 15;
  static constexpr unsigned int largest = 0x7b, beyond = 0x7c, nan = 0x7e;
  static constexpr bool one_zero = false;
};

struct hd_f8e5m2fnuz {
  unsigned char bits;
  static constexpr int mantissa = 2, bias = 16;
  static constexpr unsigned int largest = 0x7f, beyond = 0x80, nan = 0x80;
  static constexpr bool one_zero = true;
};

// Powers of two from 2^-127 on, and NaN.
struct hd_f8e8m0fnu {
  unsigned char bits;
  static constexpr int mantissa = 0;
};

template <class T>
static __device__ __forceinline__ float hd_widen_float8(T stored) {
  const unsigned int code = stored.bits;
  unsigned int bits;
  if constexpr (T::mantissa == 0) {
    bits = code == 0 ? 1u << 22 : code == 0xffu ? 0x7fc00000u : code << 23;
  } else {
    const unsigned int magnitude = code & 0x7fu;
    const float unit = __int_as_float((128 - T::bias - T::mantissa) << 23);
    bits = magnitude < (1u << T::mantissa)
               ? (unsigned int)__float_as_int((float)(int)magnitude * unit)
               : (magnitude << (23 - T::mantissa)) + ((unsigned int)(127 - T::bias) << 23);
    if (T::one_zero ? code == T::nan : magnitude > T::largest)
      bits = magnitude == T::beyond && T::beyond != T::nan ? 0x7f800000u : 0x7fc00000u;
    bits |= (code & 0x80u) << 24;
  }
  return __int_as_float((int)bits);
}

// To nearest, ties to even; of powers of two to the larger one.
template <class T>
static __device__ __forceinline__ T hd_to_float8(float value) {
  const unsigned int bits = (unsigned int)__float_as_int(value);
  const unsigned int magnitude = bits & 0x7fffffffu;
  unsigned int code;
  if constexpr (T::mantissa == 0) {
    code = magnitude < 0x800000u ? (magnitude >= 0x600000u ? 1u : 0u) : (magnitude + 0x400000u) >> 23;
    if (bits - 1u >= 0x7f7fffffu) code = 0xffu;
  } else {
    constexpr int shift = 23 - T::mantissa;
    if (magnitude < ((unsigned int)(128 - T::bias) << 23)) {
      // Added to a number whose last place is theirs, subnormal numbers are rounded to it.
      const float unit = __int_as_float((128 + shift - T::bias) << 23);
      code = (unsigned int)__float_as_int(__int_as_float((int)magnitude) + unit) - (unsigned int)__float_as_int(unit);
    } else {
      const unsigned int moved = magnitude - ((unsigned int)(127 - T::bias) << 23);
      code = (moved + (1u << (shift - 1)) - 1u + (moved >> shift & 1u)) >> shift;
    }
    unsigned int sign = bits >> 24 & 0x80u;
    if (code > T::largest) code = magnitude > 0x7f800000u ? T::nan : T::beyond;
    if (T::one_zero && (code == 0 || code == T::nan)) sign = 0;
    code |= sign;
  }
  T stored;
  stored.bits = (unsigned char)code;
  return stored;
}
