#include "heddle/error.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/location.h"

namespace heddle {
namespace {

TEST(Error, one_line_without_empty_parts) {
  EXPECT_EQ(Error::format({.what = "matmul: C2 inner sizes agree",
                           .where = "block.cpp:12",
                           .expected = "128",
                           .got = "64"}),
            "matmul: C2 inner sizes agree at block.cpp:12: expected 128, got 64");
  EXPECT_EQ(Error::format({.what = "a", .where = "b"}), "a at b");
  EXPECT_EQ(Error::format({.what = "a", .expected = "c"}), "a: expected c");
  EXPECT_EQ(Error::format({.what = "a", .got = "d"}), "a: got d");
  EXPECT_EQ(Error::format({.where = "b", .got = "d"}), "at b: got d");
  EXPECT_EQ(Error::format({.expected = "c", .got = "d"}), "expected c, got d");
  EXPECT_EQ(Error::format({}), "");
}

TEST(Error, keeps_its_parts_and_its_type) {
  try {
    throw DeviceLost({.what = "launch", .where = "x.cpp:3"});
  } catch (const DeviceError& error) {
    EXPECT_STREQ(error.what(), "launch at x.cpp:3");
    EXPECT_EQ(error.where(), "x.cpp:3");
    EXPECT_EQ(error.parts().what, "launch");
    EXPECT_NE(dynamic_cast<const DeviceLost*>(&error), nullptr);
  }
}

TEST(Check, says_file_line_condition_and_detail) {
  int line = 0;
  try {
    line = __LINE__ + 1;
    HD_CHECK(1 + 1 == 3, "graph text");
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_EQ(std::string(error.what()), std::string(__FILE__) + ":" + std::to_string(line) +
                                             ": check failed: 1 + 1 == 3\ngraph text");
  }
  EXPECT_NO_THROW(HD_CHECK(true));
}

TEST(Location, drops_folders_and_keeps_node_names) {
  EXPECT_EQ((base::Location{"/a/b/block.cpp", 12}.to_string()), "block.cpp:12");
  EXPECT_EQ((base::Location{"layers/0/MatMul", 0}.to_string()), "layers/0/MatMul");
  EXPECT_TRUE(base::Location{}.empty());
}

TEST(Hash, is_xxh3) {
  EXPECT_EQ(base::hash128("").hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(base::hash64(""), 0x2d06800538d394c2ULL);
  EXPECT_NE(base::hash64("a", 1, 1), base::hash64("a", 1, 2));
  EXPECT_NE(base::combine(1, 2), base::combine(2, 1));
}

}  // namespace
}  // namespace heddle
