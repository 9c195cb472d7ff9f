// Lines of CUDA C++, indented.
#pragma once

#include <cstdint>
#include <string>

namespace heddle::jit::cuda {

/// What writers of kernels' text derive from.
class TextWriter {
 protected:
  static std::string number(std::int64_t value) { return std::to_string(value); }

  void line(const std::string& text) {
    text_.append(2 * static_cast<std::size_t>(depth_), ' ');
    text_ += text + "\n";
  }
  void open(const std::string& head) {
    line(head + " {");
    ++depth_;
  }
  void close() {
    --depth_;
    line("}");
  }

  std::string text_;
  int depth_ = 1;
};

}  // namespace heddle::jit::cuda
