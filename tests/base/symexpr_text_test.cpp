#include <gtest/gtest.h>

#include "base/symexpr.h"
#include "heddle/error.h"

namespace heddle::base {
namespace {

std::string printed(std::string_view text) { return parse_symexpr(text).to_string(); }

std::string parse_error(std::string_view text) {
  try {
    return "parsed as " + printed(text);
  } catch (const ParseError& error) {
    return error.what();
  }
}

TEST(SymExprText, reads_what_people_write) {
  EXPECT_EQ(printed(" 2 * s0 + 1 "), "2*s0+1");
  EXPECT_EQ(printed("1+s0*2"), "2*s0+1");
  EXPECT_EQ(printed("-(s0 - 1)*3"), "-3*s0+3");
  EXPECT_EQ(printed("floor(s0/2)"), "floor(s0/2)");
  EXPECT_EQ(printed("floor((s0 + 1) / (2*s1))"), "floor((s0+1)/(2*s1))");
  EXPECT_EQ(printed("floor(-s0/2)"), "floor(-s0/2)");
  EXPECT_EQ(printed("max(mod(s0, 4), min(u3, i12*t0))"), "max(mod(s0,4),min(i12*t0,u3))");
  EXPECT_EQ(printed("-9223372036854775808"), "-9223372036854775808");
  EXPECT_EQ(printed("s0-9223372036854775808"), "s0-9223372036854775808");
}

TEST(SymExprText, reals_are_functions_of_reals) {
  EXPECT_EQ(printed("whole(rfloor(single(rmul(single(real(s0+1)), 0.3))))"),
            "whole(rfloor(single(rmul(single(real(s0+1)),0.3))))");
  EXPECT_EQ(printed("s0+2*whole(radd(real(s0),-1.5e+300))"),
            "s0+2*whole(radd(real(s0),-1.5e+300))");
  EXPECT_EQ(printed("whole(rdiv(real(s0),inf))-whole(rmax(real(u0),-inf))"),
            "whole(rdiv(real(s0),inf))-whole(rmax(real(u0),-inf))");
  EXPECT_EQ(printed("whole(rmin(nan,real(s0)))"), "whole(rmin(nan,real(s0)))");
  EXPECT_EQ(printed("whole(rsqrt(2.25)) + whole(-7.9)"), "-6") << "of numbers it is one";
  EXPECT_EQ(printed("whole(rdiv(1,0))+whole(nan)"), "0");
  EXPECT_EQ(parse_error("whole(s0)"),
            "size expression \"whole(s0)\" at column 7: expected a real number, or real, radd or "
            "another function of reals, got \"s0)\"");
  EXPECT_EQ(parse_error("radd(1,2)").substr(0, 39), "size expression \"radd(1,2)\" at column 1")
      << "a real is no size";
}

TEST(SymExprText, errors_name_the_column) {
  EXPECT_EQ(parse_error("2*s0+"),
            "size expression \"2*s0+\" at column 6: expected a number, a symbol, floor, mod, min, "
            "max, whole or (, got the end");
  EXPECT_EQ(parse_error("x0"),
            "size expression \"x0\" at column 1: expected a number, a symbol, floor, mod, min, "
            "max, whole or (, got \"x0\"");
  EXPECT_EQ(parse_error("s"),
            "size expression \"s\" at column 2: expected the number of a symbol, "
            "got the end");
  EXPECT_EQ(parse_error("s0 s1"),
            "size expression \"s0 s1\" at column 4: expected an operator or the end, got \"s1\"");
  EXPECT_EQ(parse_error("floor(s0+1/2)"),
            "size expression \"floor(s0+1/2)\" at column 9: expected /, got \"+1/2)\"");
  EXPECT_EQ(parse_error("99999999999999999999"),
            "size expression \"99999999999999999999\" at column 1: expected a number of 64 bits, "
            "got \"99999999999999999999\"");
}

TEST(SymExprText, refuses_deep_nesting) {
  const std::string deep = std::string(100000, '(') + "s0" + std::string(100000, ')');
  EXPECT_THROW(parse_symexpr(deep), ParseError);
  std::string minus(100000, '-');
  EXPECT_THROW(parse_symexpr(minus + "s0"), ParseError);
}

}  // namespace
}  // namespace heddle::base
