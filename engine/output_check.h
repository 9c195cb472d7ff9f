// What run_into takes as outputs.
#pragma once

#include <cstddef>
#include <span>

#include "engine/executable.h"
#include "engine/guards.h"
#include "engine/tensor_impl.h"

namespace heddle::engine {

/// Whether only the run tells some of the sizes.
bool is_late(const Sizes& sizes);

/// @throws ArgumentError
void check_output_count(std::size_t expected, std::size_t got);

/// That output k is a row-major tensor of this type, on `device` or the host.
/// @throws DeviceError, ShapeError
void check_output_type(DType dtype, const Sizes& sizes, const Device& device, const Tensor& output,
                       std::size_t k);

/// @throws AliasingError: output k overlaps the input or output of number `other`.
[[noreturn]] void refuse_overlap(std::size_t k, const char* what, std::size_t other);

/// An output k lies exactly where this input does, which is allowed; kNoInput: it lies where none does.
constexpr std::size_t kNoInput = static_cast<std::size_t>(-1);

/// Output k, its type and where it lies: over no other output, and over no input but exactly over a donated one.
/// @param outputs  those that are empty handles lie nowhere yet
/// @param is_donated  says it of input i
/// @throws DeviceError, ShapeError, AliasingError
template <typename F>
std::size_t check_output(DType dtype, const Sizes& sizes, const Device& device,
                         std::span<const Tensor> inputs, std::span<const Tensor> outputs,
                         std::size_t k, F&& is_donated) {
  const Tensor& output = outputs[k];
  check_output_type(dtype, sizes, device, output, k);
  const MemoryRange own = extent_of(*output.impl());
  std::size_t place = kNoInput;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const MemoryRange other = extent_of(*inputs[i].impl());
    if (!overlap(own, other)) continue;
    if (own != other || !is_donated(i)) refuse_overlap(k, "input", i);
    place = i;
  }
  for (std::size_t o = 0; o < k; ++o)
    if (outputs[o].defined() && overlap(own, extent_of(*outputs[o].impl())))
      refuse_overlap(k, "output", o);
  return place;
}

}  // namespace heddle::engine
