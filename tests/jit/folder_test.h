// A folder of its own for each test, removed afterwards.
#pragma once

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <unistd.h>

namespace heddle::tests {

class FolderTest : public ::testing::Test {
 protected:
  FolderTest() {
    static std::atomic<int> counter{0};
    const std::string name =
        "heddle_test_" + std::to_string(getpid()) + "_" + std::to_string(counter++);
    folder_ = (std::filesystem::temp_directory_path() / name).string();
  }
  ~FolderTest() override { std::filesystem::remove_all(folder_); }

  std::string read(const std::string& path) const {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& path, const std::string& bytes) const {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  }
  std::size_t files() const {
    namespace fs = std::filesystem;
    if (!fs::exists(folder_)) return 0;
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  std::string folder_;
};

}  // namespace heddle::tests
