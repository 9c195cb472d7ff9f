#include "base/json.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace heddle::base {
namespace {

TEST(Json, PrintsEachKindAnEntryALine) {
  Json document{{"name", "a"}, {"count", 3}, {"list", Json::array()}, {"none", nullptr}};
  document["list"].push_back(true);
  document["list"].push_back({{"half", 0.5}, {"whole", 2.0}});
  document["list"].back()["more"] = std::vector<std::string>{"x", "y"};
  document["empty"] = Json::object();
  document["count"] = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(
      document.dump(),
      "{\n \"name\": \"a\",\n \"count\": -9223372036854775808,\n \"list\": [\n  true,\n  {\n"
      "   \"half\": 0.5,\n   \"whole\": 2.0,\n   \"more\": [\n    \"x\",\n    \"y\"\n   ]\n  }\n"
      " ],\n \"none\": null,\n \"empty\": {}\n}");
  EXPECT_EQ(document["count"].integer(), std::numeric_limits<std::int64_t>::min());
  EXPECT_TRUE(document["none"].is_null());
}

TEST(Json, NumbersAreThoseOfJson) {
  EXPECT_EQ(Json(1e300).dump(), "1e+300");
  EXPECT_EQ(Json(-0.1).dump(), "-0.1");
  EXPECT_EQ(Json(std::nan("")).dump(), "null");
  EXPECT_EQ(Json(-std::numeric_limits<double>::infinity()).dump(), "null");
}

TEST(Json, TextIsEscapedAndUtf8) {
  EXPECT_EQ(Json("a\"b\\c\nd\te\x01\x7f").dump(), R"("a\"b\\c\nd\te\u0001\u007f")");
  EXPECT_EQ(Json("\xC3\xA9\xE2\x86\x92\xF0\x9F\x98\x80").dump(),
            "\"\xC3\xA9\xE2\x86\x92\xF0\x9F\x98\x80\"");
  // A stray byte, a character cut off, one that is longer than needed, half a pair.
  for (const char* text : {"\x80", "\xE2\x86", "\xC0\xAF", "\xED\xA0\x80"}) {
    const std::string printed = Json(text).dump();
    EXPECT_EQ(printed.find("\"\xEF\xBF\xBD"), 0u) << printed;
    EXPECT_EQ(printed.find(text), std::string::npos) << printed;
  }
}

}  // namespace
}  // namespace heddle::base
