// Names for sizes that a set of expressions sees only together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/symexpr.h"

namespace heddle::base {

/// Replaces what expressions compute from sizes by names of its own, where no symbol of it is seen elsewhere: the index
/// floor((s1+1)/2)*i0 + i1 below floor((s1+1)/2) as n*i0 + i1 below n. A layer in the middle of a network, whose sizes are
/// those of the inputs rounded many times, so becomes the layer that it is. What the names stand for is known to them alone:
/// nothing can be said any more of n and s1.
class SizeNames {
 public:
  /// Symbols sN from this number on stand for the names.
  static constexpr std::uint32_t kFirst = std::uint32_t{1} << 30;

  /// @param exprs  all expressions that will be renamed
  /// @param may_name  whether a part has the least value that is known of a size without a range, so that a symbol may stand for it
  SizeNames(std::span<const SymExpr> exprs, const std::function<bool(const SymExpr&)>& may_name);
  ~SizeNames();
  SizeNames(const SizeNames&) = delete;
  SizeNames& operator=(const SizeNames&) = delete;

  bool empty() const { return meanings_.empty(); }
  SymExpr renamed(const SymExpr& expr);
  /// What a symbol stands for: itself if it is no name.
  SymExpr meaning(Symbol symbol) const;
  /// Of all names, in the order of their numbers.
  std::span<const SymExpr> meanings() const { return meanings_; }

 private:
  class Finder;
  class Renamer;

  std::vector<SymExpr> meanings_;
  std::unique_ptr<Renamer> renamer_;
};

}  // namespace heddle::base
