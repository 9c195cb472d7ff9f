// What the assembler reports of kernels (--ptxas-options=-v).
#pragma once

#include <algorithm>
#include <gtest/gtest.h>
#include <string>

namespace heddle::tests {

/// Of each of `kernels`, what does not fit into a thread's registers, and goes to memory and back, is at most so many bytes.
/// The log without the notes that ptxas makes of products by warpgroups: where it waits for them by itself.
inline std::string without_notes(const std::string& log) {
  std::string rest;
  for (std::size_t at = 0; at < log.size();) {
    const std::size_t end = std::min(log.find('\n', at), log.size() - 1) + 1;
    const std::string line = log.substr(at, end - at);
    if (line.find("(C75") == std::string::npos) rest += line;
    at = end;
  }
  return rest;
}

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
