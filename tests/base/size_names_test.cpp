// Names for sizes that expressions see only together.
#include "base/size_names.h"

#include <gtest/gtest.h>

#include "tests/base/symexpr_random.h"

namespace heddle::base {
namespace {

using testing::RandomExprs;

std::vector<SymExpr> parsed(std::initializer_list<const char*> texts) {
  std::vector<SymExpr> exprs;
  for (const char* text : texts) exprs.push_back(parse_symexpr(text));
  return exprs;
}

bool at_least_zero(const SymExpr& size) { return provably_nonnegative(size, {}); }

/// What the names found in `exprs` stand for.
std::vector<std::string> named(std::initializer_list<const char*> texts) {
  std::vector<std::string> meanings;
  const SizeNames names(parsed(texts), at_least_zero);
  for (const SymExpr& meaning : names.meanings()) meanings.push_back(meaning.to_string());
  return meanings;
}

using Meanings = std::vector<std::string>;

TEST(SizeNames, StandForWhatIsSeenAsOne) {
  EXPECT_EQ(named({"floor((s1+1)/2)*i0+i1", "floor((s1+1)/2)-1"}), Meanings{"floor((s1+1)/2)"});
  EXPECT_EQ(named({"64*s0*s1*s2", "18*s0*s1*s2+i0"}), Meanings{"s0*s1*s2"});
  EXPECT_EQ(named({"floor((s0*s1+31)/32)", "s0*s1*i0"}), Meanings{"s0*s1"});
  // The largest: the kernel asks for nothing inside of it.
  EXPECT_EQ(named({"floor((floor((s1+1)/2)+1)/2)*i0"}), Meanings{"floor((floor((s1+1)/2)+1)/2)"});
  // What a window moves over and what comes out are computed of one size.
  EXPECT_EQ(named({"floor((floor((s1+1)/2)+1)/2)*i0", "floor((s1+1)/2)"}),
            Meanings{"floor((s1+1)/2)"});
}

TEST(SizeNames, StandForWholeReals) {
  EXPECT_EQ(named({"whole(rmul(real(s1),0.3))*i0+i1"}), Meanings{"whole(rmul(real(s1),0.3))"});
  EXPECT_EQ(named({"whole(rsub(real(s1),3.0))*i0"}), Meanings{}) << "it may be negative";
  EXPECT_EQ(named({"whole(rmul(real(2*s1),0.3))*i0", "2*s1*i0"}), Meanings{});
}

TEST(SizeNames, LeaveWhatIsSeenElsewhere) {
  EXPECT_EQ(named({"floor((s1+1)/2)*i0", "s1"}), Meanings{});
  EXPECT_EQ(named({"s0*s1", "s1*i0"}), Meanings{});
  EXPECT_EQ(named({"s0", "s1*i0", "3*s2+1"}), Meanings{}) << "symbols are names already";
  EXPECT_EQ(named({"mod(i0,s1)+floor(i0/s1)"}), Meanings{});
}

TEST(SizeNames, LeaveWhatNoSizeMayBe) {
  EXPECT_EQ(named({"floor(8/s1)*i0"}), Meanings{}) << "s1 may be 0 where nothing runs";
  EXPECT_EQ(named({"min(s1,-s0)*i0"}), Meanings{}) << "it may be negative";
}

TEST(SizeNames, RenameWhereverTheyAreMeant) {
  const auto exprs = parsed({"floor((s1+1)/2)*i0*s0+i1", "floor((2*floor((s1+1)/2)+i1)/8)"});
  SizeNames names(exprs, at_least_zero);
  const std::string name = SymExpr::size(SizeNames::kFirst).to_string();
  EXPECT_EQ(names.renamed(exprs[0]), parse_symexpr(name + "*i0*s0+i1"));
  EXPECT_EQ(names.renamed(exprs[1]), parse_symexpr("floor((2*" + name + "+i1)/8)"));
  EXPECT_EQ(names.renamed(7), SymExpr(7));
  EXPECT_EQ(names.meaning(SymExpr::size(SizeNames::kFirst).symbol()),
            parse_symexpr("floor((s1+1)/2)"));
  EXPECT_EQ(names.meaning({Symbol::Kind::Size, 0}), SymExpr::size(0));
}

/// Renamed expressions have the values of the old ones where names have those of what they stand for, and no symbol that a
/// name hides.
TEST(SizeNames, KeepValues) {
  const std::vector<Symbol> symbols = {{Symbol::Kind::Size, 0},
                                       {Symbol::Kind::Size, 1},
                                       {Symbol::Kind::Size, 2},
                                       {Symbol::Kind::Axis, 0}};
  RandomExprs random(5, symbols);
  int with_names = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<SymExpr> exprs;
    const std::int64_t count = random.between(1, 3);
    for (std::int64_t k = 0; k < count; ++k) exprs.push_back(random.make(3).expr);
    SizeNames names(exprs, [](const SymExpr&) { return true; });
    with_names += names.empty() ? 0 : 1;
    SymbolValues values;
    for (const Symbol& symbol : symbols) values[symbol] = random.between(1, 9);
    SymbolValues renamed_values = values;
    std::vector<Symbol> hidden;
    for (std::uint32_t k = 0; k < names.meanings().size(); ++k) {
      renamed_values[{Symbol::Kind::Size, SizeNames::kFirst + k}] =
          names.meanings()[k].evaluate(values);
      names.meanings()[k].collect_symbols(hidden);
    }
    for (const SymExpr& expr : exprs) {
      const SymExpr renamed = names.renamed(expr);
      ASSERT_EQ(renamed.evaluate(renamed_values), expr.evaluate(values)) << expr.to_string();
      for (const Symbol& symbol : hidden)
        ASSERT_FALSE(renamed.mentions(symbol)) << expr.to_string() << ": " << renamed.to_string();
    }
  }
  EXPECT_GT(with_names, 300);
}

}  // namespace
}  // namespace heddle::base
