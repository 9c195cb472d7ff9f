#include "heddle/device.h"

#include <charconv>

#include "heddle/error.h"

namespace heddle {

Device Device::best_available() { return cpu(); }

Device Device::parse(std::string_view text) {
  if (text == "cpu") return cpu();
  if (text == "reference") return reference();
  if (text == "cuda-sim") return {Kind::CudaSim, 0};
  if (text == "cuda") return cuda(0);
  if (text.starts_with("cuda:")) {
    int index = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + 5, end, index);
    if (error == std::errc{} && stop == end && index >= 0) return cuda(index);
  }
  throw OptionError({.what = "device",
                     .where = {},
                     .expected = "cpu, cuda, cuda:N, cuda-sim or reference",
                     .got = std::string(text)});
}

std::string Device::to_string() const {
  switch (kind_) {
    case Kind::Cpu:
      return "cpu";
    case Kind::CudaSim:
      return "cuda-sim";
    case Kind::Reference:
      return "reference";
    case Kind::Cuda:
      break;
  }
  return index_ == 0 ? "cuda" : "cuda:" + std::to_string(index_);
}

}  // namespace heddle
