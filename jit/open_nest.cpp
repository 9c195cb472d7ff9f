#include "jit/open_nest.h"

#include <algorithm>
#include <map>
#include <type_traits>
#include <utility>
#include <variant>

#include "jit/lower/nest_rewrite.h"

namespace heddle::jit {

namespace {

using Kind = SymExpr::Kind;

/// Bytes of all buffers, at most: to compile a kernel takes as long as one that is slow takes for about so many.
constexpr std::int64_t kMostBytes = std::int64_t{4} << 20;
/// Kernels take what they need of so many from registers and a little of the stack.
constexpr std::size_t kMostSizes = 32;

bool moves_little(const Nest& nest) {
  std::int64_t bytes = 0;
  for (const NestBuffer& buffer : nest.buffers) {
    if (buffer.scope != NestBuffer::Scope::Global) continue;
    if (!buffer.count.is_constant() || buffer.count.constant() > kMostBytes) return false;
    bytes += buffer.count.constant() * static_cast<std::int64_t>(size_of(buffer.dtype));
  }
  return bytes <= kMostBytes;
}

bool is_plain(const Block& block) {
  return std::ranges::all_of(block, [](const Stmt& stmt) {
    return std::visit(
        [](const auto& node) {
          using T = std::decay_t<decltype(node)>;
          if constexpr (std::is_same_v<T, ContractStmt> || std::is_same_v<T, BindStmt>)
            return false;
          else if constexpr (std::is_same_v<T, ForStmt> || std::is_same_v<T, IfStmt>)
            return is_plain(*node.body);
          else
            return true;
        },
        stmt.node);
  });
}

class Opener {
 public:
  explicit Opener(const Nest& nest) : opened_(nest) {}

  std::vector<std::int64_t> run() {
    open_extent(opened_.parallel_axis, opened_.parallel_extent);
    parameters_.clear();  // that is a number of parts, whatever else is as many
    for (NestBuffer& buffer : opened_.buffers)
      if (buffer.scope == NestBuffer::Scope::Global) open(buffer.count);
    next_scalar_ = last_scalar(opened_.body) + 1;
    open(opened_.body);
    base::Facts facts;
    facts.sizes_positive = opened_.facts.sizes_positive;
    for (auto [symbol, range] : opened_.facts.ranges()) {
      if (range.low) open(*range.low);
      // Of an axis that goes up to a number less one, that number is a parameter.
      const auto extent = extents_.find(symbol);
      if (extent != extents_.end())
        range.high = extent->second - 1;
      else if (range.high)
        range.high = opened(*range.high + 1) - 1;
      facts.set_range(symbol, std::move(range));
    }
    for (std::uint32_t k = 0; k < sizes_.size(); ++k) facts.set_low(symbol_of(k), 2);
    opened_.facts = std::move(facts);
    opened_.size_count += static_cast<std::uint32_t>(sizes_.size());
    return std::move(sizes_);
  }

  Nest take() { return std::move(opened_); }

 private:
  Symbol symbol_of(std::size_t parameter) const {
    return {Symbol::Kind::Size, opened_.size_count + static_cast<std::uint32_t>(parameter)};
  }

  /// Small ones say what is neighbouring, and how loops were cut, and stay.
  static bool is_small(std::int64_t value) { return value >= -16 && value <= 16; }
  SymExpr number(std::int64_t value) {
    if (is_small(value)) return value;
    return value < 0 ? -parameter(-value) : parameter(value);
  }
  SymExpr parameter(std::int64_t size) {
    const auto [known, is_new] = parameters_.try_emplace(size, sizes_.size());
    if (is_new) sizes_.push_back(size);
    return symbol_of(known->second);
  }

  SymExpr opened(const SymExpr& expr) {
    if (expr.is_constant()) return number(expr.constant());
    if (expr.is_symbol() || expr.kind() > Kind::Max) return expr;  // reals stay as they are
    std::vector<SymExpr> operands = expr.operands();
    for (SymExpr& operand : operands) operand = opened(operand);
    SymExpr result = operands[0];
    for (std::size_t k = 1; k < operands.size(); ++k)
      result = joined(expr.kind(), result, operands[k]);
    return result;
  }
  static SymExpr joined(Kind kind, const SymExpr& a, const SymExpr& b) {
    switch (kind) {
      case Kind::Sum:
        return a + b;
      case Kind::Product:
        return a * b;
      case Kind::FloorDiv:
        return floordiv(a, b);
      case Kind::Mod:
        return mod(a, b);
      case Kind::Min:
        return min(a, b);
      default:
        return max(a, b);
    }
  }
  void open(SymExpr& expr) { expr = opened(expr); }
  /// However small.
  void open_extent(Symbol axis, SymExpr& extent) {
    const bool is_known = extent.is_constant() && extent.constant() > 1;
    extent = is_known ? parameter(extent.constant()) : opened(extent);
    if (is_known) extents_[axis] = extent;
  }

  void open(Block& block) {
    Block result;
    for (Stmt& stmt : block) {
      if (auto* constant = std::get_if<ConstStmt>(&stmt.node)) {
        open(*constant, result);
        continue;
      }
      if (auto* loop = std::get_if<ForStmt>(&stmt.node)) {
        open_extent(loop->axis, loop->extent);
        open(loop->body);
      } else if (auto* branch = std::get_if<IfStmt>(&stmt.node)) {
        open(branch->body);
      } else {
        Block one;
        one.push_back(std::move(stmt));
        for_each_expr(one, [this](SymExpr& expr) { open(expr); });
        stmt = std::move(one.front());
      }
      result.push_back(std::move(stmt));
    }
    block = std::move(result);
  }
  void open(std::shared_ptr<Block>& body) {
    body = std::make_shared<Block>(*body);
    open(*body);
  }
  /// Integers that sizes are made to, as zero points of weights.
  void open(const ConstStmt& constant, Block& result) {
    const bool is_opened =
        (constant.dtype == DType::I32 || constant.dtype == DType::I64) && constant.integer > 1;
    if (!is_opened) return result.push_back({constant});
    if (constant.dtype == DType::I64)
      return result.push_back({IndexStmt{constant.result, parameter(constant.integer)}});
    const ScalarId index = next_scalar_++;
    result.push_back({IndexStmt{index, parameter(constant.integer)}});
    result.push_back({ConvertStmt{constant.result, constant.dtype, index}});
  }

  static ScalarId last_scalar(const Block& block);

  Nest opened_;
  std::map<std::int64_t, std::size_t> parameters_;
  base::SymbolExprs extents_;  ///< of axes with one that was a number
  std::vector<std::int64_t> sizes_;
  ScalarId next_scalar_ = 0;
};

/// The highest number that a statement gives.
ScalarId Opener::last_scalar(const Block& block) {
  ScalarId last = 0;
  for (const Stmt& stmt : block) {
    std::visit(
        [&](const auto& node) {
          using T = std::decay_t<decltype(node)>;
          if constexpr (requires { node.result; }) last = std::max(last, node.result);
          if constexpr (std::is_same_v<T, ForStmt>) {
            for (const LoopReduction& reduction : node.reductions)
              for (const ScalarId result : reduction.results) last = std::max(last, result);
            for (const LoopCarried& carried : node.carried)
              last = std::max({last, carried.current, carried.result});
          }
          if constexpr (std::is_same_v<T, ForStmt> || std::is_same_v<T, IfStmt>)
            last = std::max(last, last_scalar(*node.body));
        },
        stmt.node);
  }
  return last;
}

}  // namespace

OpenNest OpenNest::of(std::shared_ptr<const Nest> nest) {
  if (nest->product || nest->attention || !is_plain(nest->body) || !moves_little(*nest))
    return {std::move(nest), {}};
  Opener opener(*nest);
  std::vector<std::int64_t> sizes = opener.run();
  if (sizes.size() > kMostSizes) return {std::move(nest), {}};
  return {std::make_shared<const Nest>(opener.take()), std::move(sizes)};
}

}  // namespace heddle::jit
