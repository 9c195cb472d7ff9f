// A file's bytes as magika's model takes them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace example {

/// What the model wants: the first and the last bytes of a file, without the blanks around them.
struct Config {
  std::size_t begin_bytes = 1024;
  std::size_t end_bytes = 1024;
  std::size_t block_bytes = 4096;
  int padding = 256;
  std::vector<std::string> labels;
};

inline bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/// The model's input for one file: begin_bytes + end_bytes numbers, 0 to 255 or the padding.
inline std::vector<std::int32_t> tokens_of(const std::string& bytes, const Config& config) {
  const std::size_t block = std::min(config.block_bytes, bytes.size());
  const auto first = std::find_if_not(bytes.begin(), bytes.begin() + block, is_blank);
  std::string begin(first, bytes.begin() + block);
  const auto last = std::find_if_not(bytes.rbegin(), bytes.rbegin() + block, is_blank);
  std::string end(bytes.end() - block, last.base());
  begin.resize(std::min(begin.size(), config.begin_bytes));
  if (end.size() > config.end_bytes) end.erase(0, end.size() - config.end_bytes);
  std::vector<std::int32_t> tokens(config.begin_bytes + config.end_bytes, config.padding);
  const auto byte = [](char c) { return static_cast<std::int32_t>(static_cast<unsigned char>(c)); };
  std::transform(begin.begin(), begin.end(), tokens.begin(), byte);
  std::transform(end.begin(), end.end(), tokens.end() - static_cast<std::ptrdiff_t>(end.size()),
                 byte);
  return tokens;
}

}  // namespace example
