#include "base/boxed.h"

#include <gtest/gtest.h>
#include <string>
#include <type_traits>
#include <utility>

namespace heddle::base {
namespace {

struct Pair {
  std::string text;
  int number = 0;
};

TEST(Boxed, IsAValueOrNothing) {
  Boxed<Pair> none;
  EXPECT_FALSE(none);
  EXPECT_FALSE(none.has_value());
  EXPECT_EQ(sizeof none, sizeof(void*));
  Boxed<Pair> one = Pair{"one", 1};
  ASSERT_TRUE(one);
  EXPECT_EQ(one->text, "one");
  one.emplace("two", 2);
  EXPECT_EQ((*one).number, 2);
  one = std::nullopt;
  EXPECT_FALSE(one);
}

TEST(Boxed, CopiesAreTheirOwn) {
  Boxed<Pair> one = Pair{"one", 1};
  Boxed<Pair> copy = one;
  copy->number = 2;
  EXPECT_EQ(one->number, 1);
  one = copy;
  EXPECT_EQ(one->number, 2);
  EXPECT_EQ(copy->number, 2);
  const Boxed<Pair> moved = std::move(copy);
  EXPECT_EQ(moved->number, 2);
  static_assert(std::is_nothrow_move_constructible_v<Boxed<Pair>>);
}

}  // namespace
}  // namespace heddle::base
