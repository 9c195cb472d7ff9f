// Where in the user's program a node came from.
#pragma once

#include <cstdint>
#include <string>

namespace heddle::base {

/// The user's source line, or the name of a node in a model file.
struct Location {
  std::string file;  ///< source file, or the model node's name when line is 0
  std::uint32_t line = 0;

  bool empty() const { return file.empty(); }
  std::string to_string() const;  ///< "block.cpp:12" (file name without folders) or the node's name
};

}  // namespace heddle::base
