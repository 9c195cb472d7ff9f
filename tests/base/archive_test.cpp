// Values that become bytes and come back.
#include "base/archive.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "tests/base/symexpr_random.h"

namespace heddle::base {

struct ArchivedPoint {
  int x = 0;
  std::optional<double> y;
  friend bool operator==(const ArchivedPoint&, const ArchivedPoint&) = default;
};
void fields(auto& archive, Like<ArchivedPoint> auto& point) {
  auto& [x, y] = point;
  archive(x, y);
}

namespace {

template <typename T>
T back(const T& value) {
  ArchiveWriter writer;
  writer(value);
  ArchiveReader reader(writer.bytes());
  T read;
  reader(read);
  EXPECT_TRUE(reader.at_end());
  return read;
}

TEST(Archive, NumbersComeBack) {
  for (const std::int64_t value :
       {std::int64_t{0}, std::int64_t{-1}, std::int64_t{63}, std::int64_t{64}, std::int64_t{-65},
        std::int64_t{1} << 40, std::numeric_limits<std::int64_t>::min(),
        std::numeric_limits<std::int64_t>::max()})
    EXPECT_EQ(back(value), value);
  for (const std::uint64_t value : {std::uint64_t{0}, std::uint64_t{127}, std::uint64_t{128},
                                    std::numeric_limits<std::uint64_t>::max()})
    EXPECT_EQ(back(value), value);
  EXPECT_EQ(back(std::uint32_t{0xffffffff}), 0xffffffff);
  EXPECT_EQ(back(-0.125), -0.125);
  EXPECT_EQ(back(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
  EXPECT_EQ(back(Symbol::Kind::Temp), Symbol::Kind::Temp);
}

TEST(Archive, WhatHoldsOthersComesBack) {
  const std::string text("a\0b", 3);
  EXPECT_EQ(back(text), text);
  EXPECT_EQ(back(std::vector<bool>{true, false, true}), (std::vector<bool>{true, false, true}));
  const std::map<std::string, std::vector<ArchivedPoint>> points{{"a", {{1, {}}, {2, 0.5}}},
                                                                 {"b", {}}};
  EXPECT_EQ(back(points), points);
  using Choice = std::variant<bool, std::string, ArchivedPoint>;
  EXPECT_EQ(back(Choice(std::string("x"))), Choice(std::string("x")));
  EXPECT_EQ(back(Choice(ArchivedPoint{3, 4})), Choice(ArchivedPoint{3, 4}));
  const Boxed<ArchivedPoint> boxed = back(Boxed<ArchivedPoint>(ArchivedPoint{5, 6}));
  ASSERT_TRUE(boxed.has_value());
  EXPECT_EQ(*boxed, (ArchivedPoint{5, 6}));
  EXPECT_FALSE(back(Boxed<ArchivedPoint>()).has_value());
}

TEST(Archive, WhatIsSharedStaysShared) {
  const auto one = std::make_shared<const ArchivedPoint>(ArchivedPoint{1, 2});
  const auto other = std::make_shared<const ArchivedPoint>(ArchivedPoint{1, 2});
  const std::vector<std::shared_ptr<const ArchivedPoint>> read =
      back(std::vector<std::shared_ptr<const ArchivedPoint>>{one, nullptr, other, one});
  EXPECT_EQ(read[1], nullptr);
  EXPECT_EQ(read[0], read[3]);
  EXPECT_NE(read[0], read[2]);
  EXPECT_EQ(*read[2], *other);
}

TEST(Archive, ExpressionsComeBackAsTheyAre) {
  testing::RandomExprs random(7,
                              {Symbol{Symbol::Kind::Size, 0}, Symbol{Symbol::Kind::Size, 70},
                               Symbol{Symbol::Kind::Axis, 1}, Symbol{Symbol::Kind::Unbacked, 2}});
  std::vector<SymExpr> exprs;
  for (int k = 0; k < 3000; ++k) exprs.push_back(random.make(k % 6).expr);
  const std::vector<SymExpr> read = back(exprs);
  ASSERT_EQ(read.size(), exprs.size());
  for (std::size_t k = 0; k < exprs.size(); ++k) {
    ASSERT_EQ(read[k], exprs[k]);
    ASSERT_EQ(SymExpr::compare(read[k], exprs[k]), 0);
    ASSERT_EQ(read[k].hash(), exprs[k].hash());
    ASSERT_EQ(read[k].to_string(), exprs[k].to_string());
    // What is known without a walk is known again.
    for (const Symbol::Kind kind : {Symbol::Kind::Size, Symbol::Kind::Axis, Symbol::Kind::Temp})
      ASSERT_EQ(read[k].mentions(kind), exprs[k].mentions(kind));
  }
}

TEST(Archive, FactsComeBack) {
  Facts facts;
  facts.sizes_positive = true;
  const Symbol axis{Symbol::Kind::Axis, 3};
  facts.set_range(axis, 0, SymExpr::size(1) - 1);
  facts.set_low(Symbol{Symbol::Kind::Size, 1}, 16);
  const Facts read = back(facts);
  EXPECT_TRUE(read.sizes_positive);
  ASSERT_EQ(read.ranges().size(), 2u);
  EXPECT_EQ(floordiv(SymExpr(axis), SymExpr::size(1)).simplify(read), SymExpr(0));
}

/// Each beginning of an archive, and each with one byte changed, is refused or read as something: nothing beyond it is touched.
TEST(Archive, BrokenBytesAreRefused) {
  using Whole = std::pair<std::vector<SymExpr>, std::vector<std::shared_ptr<ArchivedPoint>>>;
  const auto point = std::make_shared<ArchivedPoint>(ArchivedPoint{1, 2});
  Whole whole{{SymExpr::size(0) * SymExpr::size(1) + 3, floordiv(SymExpr::size(0), 4)},
              {point, point, nullptr}};
  ArchiveWriter writer;
  writer(whole);
  const std::string bytes(writer.bytes());
  const auto read = [](const std::string& text) {
    // Of its own length, so that a sanitizer sees what reads beyond.
    const std::vector<char> exact(text.begin(), text.end());
    ArchiveReader reader(std::string_view(exact.data(), exact.size()));
    Whole result;
    reader(result);
  };
  EXPECT_NO_THROW(read(bytes));
  for (std::size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(read(bytes.substr(0, size)), ArchiveError) << size;
  for (std::size_t k = 0; k < bytes.size(); ++k) {
    for (const int value : {0, 1, 2, 9, 0x7f, 0xff}) {
      std::string changed = bytes;
      changed[k] = static_cast<char>(value);
      try {
        read(changed);
      } catch (const std::exception&) {  // ArchiveError, or an expression's own
      }
    }
  }
}

}  // namespace
}  // namespace heddle::base
