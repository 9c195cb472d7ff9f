// Hashing: xxh3 over bytes, 64 and 128 bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::base {

struct Hash128 {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
  std::string hex() const;  ///< 32 lower-case digits
};

Hash128 hash128(const void* data, std::size_t bytes);
inline Hash128 hash128(std::string_view text) { return hash128(text.data(), text.size()); }
std::uint64_t hash64(const void* data, std::size_t bytes, std::uint64_t seed = 0);
inline std::uint64_t hash64(std::string_view text) { return hash64(text.data(), text.size()); }
/// Order-dependent combination of two hashes.
inline std::uint64_t combine(std::uint64_t a, std::uint64_t b) {
  // The halves of a product, as in wyhash: each bit of both reaches each bit of the result.
  constexpr std::uint64_t kA = 0xa0761d6478bd642f;
  constexpr std::uint64_t kB = 0xe7037ed1a0b428db;
  const auto wide = static_cast<unsigned __int128>(a ^ kA) * (b ^ kB);
  return static_cast<std::uint64_t>(wide) ^ static_cast<std::uint64_t>(wide >> 64);
}

}  // namespace heddle::base
