#include "base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace heddle::base {

std::string Hash128::hex() const {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text(32, '0');
  for (int i = 0; i < 16; ++i) {
    text[15 - i] = kDigits[(high >> (4 * i)) & 15];
    text[31 - i] = kDigits[(low >> (4 * i)) & 15];
  }
  return text;
}

Hash128 hash128(const void* data, std::size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return {hash.low64, hash.high64};
}

std::uint64_t hash64(const void* data, std::size_t bytes, std::uint64_t seed) {
  return XXH3_64bits_withSeed(data, bytes, seed);
}

std::uint64_t combine(std::uint64_t a, std::uint64_t b) {
  // The halves of a product, as in wyhash: each bit of both reaches each bit of the result.
  constexpr std::uint64_t kA = 0xa0761d6478bd642f;
  constexpr std::uint64_t kB = 0xe7037ed1a0b428db;
  const auto wide = static_cast<unsigned __int128>(a ^ kA) * (b ^ kB);
  return static_cast<std::uint64_t>(wide) ^ static_cast<std::uint64_t>(wide >> 64);
}

}  // namespace heddle::base
