// The parts that a convolution may be computed in, by several threads or one after another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "jit/cpu/onednn/panels.h"
#include "jit/cpu/onednn/problem.h"

namespace heddle::jit::onednn {

/// Each part gives some slices of the result along one dimension, from the slices of x that they read, as a convolution of its own; of each
/// image by itself where there are several, and of some panels of the channels where columns are.
struct Cut {
  std::size_t axis = 0;
  std::int64_t slices = 1;    ///< parts along `axis`
  std::int64_t unit = 1;      ///< their bounds are multiples of it
  bool changes_sums = false;  ///< parts add up in another order than the whole would
  std::int64_t images = 1;
  std::int64_t columns = 1;

  std::int64_t parts() const { return images * slices * columns; }
  /// Where part `slice` of `size` begins, or behind the last one all end.
  std::int64_t begin(std::int64_t slice, std::int64_t size) const;
  /// Those of `panels` that part `part` gives; neighbouring parts give the same ones.
  Panels panels_of(std::int64_t part, std::int64_t panels) const;
};

/// Where slices are whole runs of memory: along the outermost dimension that is not 1. Channels-last problems only.
///
/// Where threads outnumber such slices, or some would have more of them than others, images are cut by themselves, and channels, by a model of
/// the costs: a part of the channels reads its own weights alone, and all of x.
///
/// @param resident  parts stay in a core's cache, besides being one a thread; as is so where an image is large.
/// @param panels    of the channels, which parts may be of; each then writes to every row of the result. 1: they may not.
Cut cut_of(const Problem& problem, Algorithm algorithm, int threads, bool resident,
           std::int64_t panels = 1);

struct PartOf {
  Problem problem;            ///< with all channels
  std::int64_t x_offset = 0;  ///< elements
  std::int64_t result_offset = 0;
};
/// Part `part`; nothing where it would read padding only.
std::optional<PartOf> part_of(const Problem& whole, const Cut& cut, std::int64_t part);

}  // namespace heddle::jit::onednn
