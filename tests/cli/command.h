// Runs the heddle command and keeps what it printed.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <heddle_test_paths.h>
#include <iterator>
#include <string>
#include <sys/wait.h>

namespace heddle::cli_test {

struct Ran {
  int code = -1;
  std::string out;
  std::string err;
};

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

/// `heddle <arguments>` through the shell.
inline Ran heddle(const std::string& arguments, const std::string& scratch) {
  const std::string out = scratch + "/out.txt";
  const std::string err = scratch + "/err.txt";
  const std::string line =
      std::string(HEDDLE_COMMAND) + " " + arguments + " >" + out + " 2>" + err + " </dev/null";
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
}

}  // namespace heddle::cli_test
