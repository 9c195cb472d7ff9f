// What the assembler reports of kernels (--ptxas-options=-v).
#pragma once

#include <gtest/gtest.h>
#include <string>

namespace heddle::tests {

/// Of each of `kernels`, what does not fit into a thread's registers, and goes to memory and back, is at most so many bytes.
inline void expect_few_spills(const std::string& log, std::size_t kernels, int most_bytes) {
  constexpr std::string_view kStack = " bytes stack frame, ";
  std::size_t reports = 0;
  for (std::size_t at = log.find(kStack); at != std::string::npos; at = log.find(kStack, at + 1)) {
    const std::size_t stack = log.rfind(' ', at - 1) + 1;
    EXPECT_LE(std::stoi(log.substr(stack)), most_bytes) << log;
    EXPECT_LE(std::stoi(log.substr(at + kStack.size())), most_bytes) << log;
    ++reports;
  }
  EXPECT_EQ(reports, kernels) << log;
}

}  // namespace heddle::tests
