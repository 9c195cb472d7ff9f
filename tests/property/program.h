// Random programs over the public API with all that annotations, order, mutation and nested bodies can do.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "heddle/heddle.h"

namespace heddle::property {

/// What a program used, by feature: how often.
using Features = std::map<std::string, int>;

/// A random callable over two tensors f32[s0, 4]; the same for the same seed, at every trace.
///
/// All numbers in it are whole and small, so that every right execution gives the same bits.
class Program {
 public:
  explicit Program(std::uint32_t seed) : seed_(seed) {}

  /// Traces (or runs) the program. Fills features() and twins().
  std::vector<Tensor> operator()(const Tensor& x, const Tensor& y);

  std::uint32_t seed() const { return seed_; }
  const Features& features() const { return features_; }
  /// Ids of regions that hold a node of which an equal one, under another mark, is read too.
  const std::set<std::string>& twins() const { return twins_; }

 private:
  std::uint32_t seed_;
  Features features_;
  std::set<std::string> twins_;
};

}  // namespace heddle::property
