// Numbers drawn at random, the same for the same seed.
#pragma once

#include <cstdint>
#include <random>

namespace heddle::test {

class Draw {
 public:
  explicit Draw(std::uint32_t seed) : random_(seed) {}
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  bool one_in(std::int64_t count) { return (*this)(1, count) == 1; }

 private:
  std::mt19937 random_;
};

}  // namespace heddle::test
