#include "engine/output_check.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>
#include <vector>

#include "heddle/error.h"

namespace heddle::engine {

namespace {

std::string describe(const Tensor& tensor) {
  std::string text =
      fmt::format("{}[{}]", name_of(tensor.dtype()), fmt::join(tensor.sizes(), ", "));
  if (!tensor.is_row_major())
    text += fmt::format(" with strides [{}]", fmt::join(tensor.strides(), ", "));
  return text;
}

/// Whether `sizes` are the wanted ones, as far as these are known.
bool fits(const Sizes& sizes, const Sizes& wanted) {
  return std::ranges::equal(sizes, wanted, [](std::int64_t size, std::int64_t want) {
    return want == engine::kUnknownSize || size == want;
  });
}

std::string to_text(const Sizes& sizes) {
  std::vector<std::string> texts;
  for (const std::int64_t size : sizes)
    texts.push_back(size == engine::kUnknownSize ? "?" : std::to_string(size));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

}  // namespace

bool is_late(const Sizes& sizes) { return std::ranges::find(sizes, kUnknownSize) != sizes.end(); }

void check_output_count(std::size_t expected, std::size_t got) {
  if (got == expected) return;
  throw ArgumentError({.what = "run_into: number of outputs",
                       .where = {},
                       .expected = std::to_string(expected),
                       .got = std::to_string(got)});
}

void check_output_type(DType dtype, const Sizes& sizes, const Device& device, const Tensor& output,
                       std::size_t k) {
  if (output.defined() && output.impl()->device.kind() != Device::Kind::Cpu &&
      output.impl()->device != device)
    throw DeviceError({.what = fmt::format("run_into: output {}", k),
                       .where = {},
                       .expected = device.is_cuda() ? "cpu or " + device.to_string() : "cpu",
                       .got = output.device().to_string()});
  if (!output.defined() || output.is_symbolic() || !output.is_row_major() ||
      output.dtype() != dtype || !fits(output.impl()->sizes, sizes))
    throw ShapeError({.what = fmt::format("run_into: output {}", k),
                      .where = {},
                      .expected = fmt::format("row-major {}{}", name_of(dtype), to_text(sizes)),
                      .got = output.defined() && !output.is_symbolic() ? describe(output)
                                                                       : "no tensor with data"});
  if (output.impl()->read_only) require_writable(output, fmt::format("run_into: output {}", k));
}

void refuse_overlap(std::size_t k, const char* what, std::size_t other) {
  throw AliasingError({.what = fmt::format("run_into: output {} overlaps {} {}", k, what, other),
                       .where = {},
                       .expected = "memory of its own",
                       .got = {}});
}

}  // namespace heddle::engine
