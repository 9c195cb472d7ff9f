// Files that are mapped, and what is known of their bytes without reading them.
#include "heddle/mapped_file.h"

#include <cstring>
#include <gtest/gtest.h>
#include <string>

#include "base/file_place.h"
#include "tests/base/resident.h"
#include "tests/jit/folder_test.h"

namespace heddle {
namespace {

using MappedFileTest = tests::FolderTest;

TEST_F(MappedFileTest, HoldsTheBytesOfTheFile) {
  write(folder_, "some bytes");
  std::string reason;
  const auto file = MappedFile::open(folder_, reason);
  ASSERT_NE(file, nullptr) << reason;
  EXPECT_EQ(std::string(file->data(), file->size()), "some bytes");
}

/// What reads whole vectors reaches beyond the last element.
TEST_F(MappedFileTest, ZerosAreBehindIt) {
  for (const std::size_t size : {1000u, 4090u, 4096u, 8192u}) {
    write(folder_, std::string(size, 'x'));
    std::string reason;
    const auto file = MappedFile::open(folder_, reason);
    ASSERT_NE(file, nullptr) << reason;
    EXPECT_EQ(std::string(file->data() + size, 4096), std::string(4096, '\0')) << size;
  }
}

TEST_F(MappedFileTest, AnEmptyFileHasNone) {
  write(folder_, "");
  std::string reason;
  const auto file = MappedFile::open(folder_, reason);
  ASSERT_NE(file, nullptr) << reason;
  EXPECT_EQ(file->size(), 0u);
}

TEST_F(MappedFileTest, SaysWhyThereIsNone) {
  std::string reason;
  EXPECT_EQ(MappedFile::open(folder_, reason), nullptr);
  EXPECT_EQ(reason, "No such file or directory");
  reason.clear();
  std::filesystem::create_directories(folder_);
  EXPECT_EQ(MappedFile::open(folder_, reason), nullptr);
  EXPECT_EQ(reason, "not a regular file");
}

TEST_F(MappedFileTest, AFileThatChangedJustNowHasNoPlace) {
  write(folder_, "some bytes");
  std::string reason;
  const auto file = MappedFile::open(folder_, reason);
  ASSERT_NE(file, nullptr) << reason;
  EXPECT_EQ(base::place_in_file(file->data(), file->size()), "");
  EXPECT_EQ(base::place_in_file("elsewhere", 9), "");
}

/// The program of this test was made before, and may lie on a local disk.
TEST_F(MappedFileTest, PlacesAreThoseOfTheFile) {
  std::string reason;
  std::string place;
  const std::string program = "/proc/self/exe";
  {
    const auto file = MappedFile::open(program, reason);
    ASSERT_NE(file, nullptr) << reason;
    place = base::place_in_file(file->data() + 64, 64);
    if (place.empty()) GTEST_SKIP() << "the tests changed just now or lie on no local disk";
    EXPECT_NE(place, base::place_in_file(file->data() + 128, 64));
    EXPECT_EQ(base::place_in_file(file->data() + file->size() - 64, 65), "");
    EXPECT_NE(base::place_in_file(file->data(), file->size()), "");
  }
  const auto again = MappedFile::open(program, reason);
  ASSERT_NE(again, nullptr) << reason;
  EXPECT_EQ(base::place_in_file(again->data() + 64, 64), place);
  // A copy is another file, and changed just now.
  std::filesystem::copy_file(program, folder_);
  const auto copy = MappedFile::open(folder_, reason);
  ASSERT_NE(copy, nullptr) << reason;
  EXPECT_EQ(base::place_in_file(copy->data() + 64, 64), "");
}

TEST_F(MappedFileTest, PagesGivenBackAreReadAgain) {
  constexpr std::size_t kPage = 4096;
  std::string bytes(64 * kPage, '\0');
  for (std::size_t k = 0; k < bytes.size(); ++k) bytes[k] = static_cast<char>(k * 7 / 5);
  write(folder_, bytes);
  std::string reason;
  const auto file = MappedFile::open(folder_, reason);
  ASSERT_NE(file, nullptr) << reason;
  EXPECT_EQ(std::string(file->data(), file->size()), bytes);
  EXPECT_EQ(tests::resident_bytes(file->data()), bytes.size());
  base::give_back_pages(file->data() + 1, 20 * kPage);  // 19 whole pages
  EXPECT_EQ(tests::resident_bytes(file->data()), bytes.size() - 19 * kPage);
  base::give_back_pages(file->data() + kPage + 1, 2 * kPage - 2);
  base::give_back_pages(file->data() + kPage, file->size());  // not all of it is the file's
  EXPECT_EQ(tests::resident_bytes(file->data()), bytes.size() - 19 * kPage);
  EXPECT_EQ(std::string(file->data(), file->size()), bytes);
  // What is no file's stays.
  const std::string own(4 * kPage, 'x');
  base::give_back_pages(own.data(), own.size());
  EXPECT_EQ(own, std::string(4 * kPage, 'x'));
}

}  // namespace
}  // namespace heddle
