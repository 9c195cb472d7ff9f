// Channels of a convolution's result as kernels here multiply them: in vectors, and these in panels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "jit/cpu/onednn/vectors.h"

namespace heddle::jit::onednn {

/// Panels [begin, end).
struct Panels {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Panels of two vectors each, or one more or less where those do not divide all: they are as fast as wider ones, and more threads share them.
struct PanelWidths {
  std::int64_t lanes = 1;
  std::int64_t vectors = 0;
  std::int64_t panels = 0;

  PanelWidths(std::int64_t channels, KernelIsa isa)
      : lanes(isa == KernelIsa::Avx512 ? Avx512::kLanes
              : isa == KernelIsa::Avx2 ? Avx2::kLanes
                                       : AnyIsa::kLanes),
        vectors((channels + lanes - 1) / lanes) {
    static_assert(Avx512::kVectors == 3 && Avx2::kVectors == 2 && AnyIsa::kVectors == 2);
    const std::int64_t rounded = isa == KernelIsa::Avx512 ? vectors : vectors + 1;
    panels = std::max<std::int64_t>(vectors == 0 ? 0 : 1, rounded / 2);
  }

  /// The first vector of panel `panel`, or of those behind the last.
  std::int64_t first_vector(std::int64_t panel) const { return vectors * panel / panels; }
  std::int64_t first_column(std::int64_t panel) const { return first_vector(panel) * lanes; }
  std::int64_t vectors_of(std::int64_t panel) const {
    return first_vector(panel + 1) - first_vector(panel);
  }
};

}  // namespace heddle::jit::onednn
