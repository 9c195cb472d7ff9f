// CUDA text to a shared library of the host, by the host's compiler.
#pragma once

#include <string>
#include <vector>

namespace heddle::sim {

struct HostImage {
  std::vector<char> bytes;  ///< empty: it did not compile
  std::string log;
};

/// Names of the kernels in `text`, in order.
std::vector<std::string> kernels_in(const std::string& text);

/// Compiles `text` behind the shim. Results are kept in a folder of the user's, by the hash of all
/// that went in.
/// Cost: some tenths of a second; a file read if it was compiled before.
HostImage compile_for_host(const std::string& text);

/// Hash of all that decides what a text is compiled to: images of another one are stale.
const std::string& compiler_stamp();

}  // namespace heddle::sim
