#include "heddle/symint.h"

#include <string>

#include "base/check.h"
#include "base/symreal.h"
#include "engine/shape_scope.h"
#include "engine/tensor_impl.h"
#include "engine/trace.h"
#include "heddle/error.h"
#include "heddle/frontend.h"
#include "ir/analysis/unbacked.h"
#include "ir/known_sizes.h"

namespace heddle {

using base::Predicate;
using base::SymExpr;

namespace {
thread_local ir::ShapeEnv* shape_env = nullptr;
}  // namespace

namespace engine {

ShapeScope::ShapeScope(ir::ShapeEnv& env) : outer_(shape_env) { shape_env = &env; }
ShapeScope::~ShapeScope() { shape_env = outer_; }
ir::ShapeEnv* current_shape_env() { return shape_env; }

SymExpr to_expr(const SymInt& size) {
  return size.is_symbolic() ? size.impl()->expr : SymExpr(size.value());
}

namespace {

std::shared_ptr<Trace> trace_of(const SymInt& a, const SymInt& b) {
  if (a.is_symbolic()) return a.impl()->trace;
  return b.is_symbolic() ? b.impl()->trace : nullptr;
}

/// The outcome for this trace, guarded; nothing when nobody knows it before the run.
std::optional<bool> decided(const Predicate& predicate, const std::shared_ptr<Trace>& trace,
                            const base::Location& location) {
  ir::ShapeEnv* env = trace != nullptr ? &trace->env() : shape_env;
  if (env == nullptr) return predicate.evaluate({});
  const bool is_late = ir::is_unbacked(predicate.left) || ir::is_unbacked(predicate.right);
  if (is_late && !env->expect(predicate)) return {};
  return env->decide(predicate, "branch in user code", location);
}

bool compare(Predicate::Op op, const SymIntArg& a, const SymIntArg& b, bool swap) {
  const SymInt& left = swap ? b.value : a.value;
  const SymInt& right = swap ? a.value : b.value;
  const Predicate predicate{op, to_expr(left), to_expr(right)};
  const base::Location location = location_of(a.where.line() != 0 ? a.where : b.where);
  const std::optional<bool> outcome = decided(predicate, trace_of(left, right), location);
  if (outcome) return *outcome;
  throw TraceError({.what = "a comparison of sizes",
                    .where = location.to_string(),
                    .expected = "sizes that are known before the run, from sizes of inputs or from "
                                "inputs given as constants; cond() chooses during it",
                    .got = predicate.to_string()});
}

}  // namespace
}  // namespace engine

SymInt::SymInt(std::shared_ptr<const Impl> expr) : expr_(std::move(expr)) {}

std::int64_t SymInt::value(std::source_location where) const {
  if (!is_symbolic()) return value_;
  HD_CHECK(expr_->trace != nullptr || shape_env != nullptr, "a size outside of every trace");
  ir::ShapeEnv& env = expr_->trace != nullptr ? expr_->trace->env() : *shape_env;
  std::vector<base::Symbol> symbols;
  expr_->expr.collect_symbols(symbols);
  for (const base::Symbol& symbol : symbols) {
    if (!env.hints.contains(symbol))
      throw TraceError({.what = "SymInt::value: a size that is known only at run time",
                        .where = engine::location_of(where).to_string(),
                        .expected = "a size that follows from the inputs' sizes, or from inputs "
                                    "given as constants",
                        .got = expr_->expr.to_string()});
  }
  const std::int64_t number = expr_->expr.evaluate(env.hints);
  env.require({Predicate::Op::Eq, expr_->expr, SymExpr(number)}, "a size is used as a number",
              engine::location_of(where));
  return number;
}

std::string SymInt::to_string() const {
  return is_symbolic() ? expr_->expr.to_string() : std::to_string(value_);
}

std::string detail::seen(const SymInt& size) {
  if (!size.is_symbolic() || size.impl()->trace == nullptr) return size.to_string();
  return ir::seen(size.impl()->trace->env(), size.impl()->expr).to_string();
}

namespace {
std::optional<bool> before_run(Predicate::Op op, const SymInt& a, const SymInt& b) {
  return engine::decided({op, engine::to_expr(a), engine::to_expr(b)}, engine::trace_of(a, b),
                         engine::location_of(std::source_location::current()));
}
}  // namespace

std::optional<bool> detail::less_before_run(const SymInt& a, const SymInt& b) {
  return before_run(Predicate::Op::Lt, a, b);
}
std::optional<bool> detail::equal_before_run(const SymInt& a, const SymInt& b) {
  return before_run(Predicate::Op::Eq, a, b);
}

namespace {
template <typename F>
SymInt binary(const SymInt& a, const SymInt& b, F&& combine) {
  return engine::from_expr(combine(engine::to_expr(a), engine::to_expr(b)), engine::trace_of(a, b));
}
}  // namespace

SymInt operator+(const SymInt& a, const SymInt& b) {
  return binary(a, b, [](const SymExpr& x, const SymExpr& y) { return x + y; });
}
SymInt operator-(const SymInt& a, const SymInt& b) {
  return binary(a, b, [](const SymExpr& x, const SymExpr& y) { return x - y; });
}
SymInt operator*(const SymInt& a, const SymInt& b) {
  return binary(a, b, [](const SymExpr& x, const SymExpr& y) { return x * y; });
}
SymInt operator/(const SymInt& a, const SymInt& b) {
  return binary(a, b, [](const SymExpr& x, const SymExpr& y) { return floordiv(x, y); });
}
SymInt operator%(const SymInt& a, const SymInt& b) {
  return binary(a, b, [](const SymExpr& x, const SymExpr& y) { return mod(x, y); });
}
SymInt min(const SymInt& a, const SymInt& b) {
  return binary(a, b, [](const SymExpr& x, const SymExpr& y) { return min(x, y); });
}
SymInt max(const SymInt& a, const SymInt& b) {
  return binary(a, b, [](const SymExpr& x, const SymExpr& y) { return max(x, y); });
}

SymInt detail::real_of(const SymInt& size) {
  return binary(size, 0, [](const SymExpr& x, const SymExpr&) { return base::real(x); });
}
SymInt detail::real_of(double number) { return base::bits_of(number); }
SymInt detail::whole_of(const SymInt& real) {
  return binary(real, 0, [](const SymExpr& x, const SymExpr&) { return base::whole(x); });
}
SymInt detail::apply_real(std::string_view function, const SymInt& a, const SymInt& b) {
  using Kind = SymExpr::Kind;
  Kind kind = Kind::RealAdd;
  while (kind != Kind::RealSingle && base::name_of_real(kind) != function)
    kind = static_cast<Kind>(static_cast<int>(kind) + 1);
  HD_CHECK(base::name_of_real(kind) == function, "no function of reals: " + std::string(function));
  return binary(a, b,
                [kind](const SymExpr& x, const SymExpr& y) { return base::make_real(kind, x, y); });
}

double detail::real_number(const SymInt& real) {
  const SymExpr expr = engine::to_expr(real);
  std::vector<base::Symbol> symbols;
  expr.collect_symbols(symbols);
  base::SymbolValues values;
  for (const base::Symbol& symbol : symbols)
    values[symbol] = engine::from_expr(symbol, engine::trace_of(real, real)).value();
  return base::number_of(expr.evaluate(values));
}

SymInt detail::simplified(const SymInt& size) {
  const std::shared_ptr<engine::Trace> trace = engine::trace_of(size, size);
  const ir::ShapeEnv* env = trace != nullptr ? &trace->env() : shape_env;
  if (env == nullptr) return size;
  return engine::from_expr(engine::to_expr(size).simplify(env->facts), trace);
}

bool detail::is_short(const SymInt& size) { return base::is_short(engine::to_expr(size)); }

using Op = Predicate::Op;
bool operator==(const SymIntArg& a, const SymIntArg& b) {
  return engine::compare(Op::Eq, a, b, false);
}
bool operator!=(const SymIntArg& a, const SymIntArg& b) {
  return engine::compare(Op::Ne, a, b, false);
}
bool operator<(const SymIntArg& a, const SymIntArg& b) {
  return engine::compare(Op::Lt, a, b, false);
}
bool operator<=(const SymIntArg& a, const SymIntArg& b) {
  return engine::compare(Op::Le, a, b, false);
}
bool operator>(const SymIntArg& a, const SymIntArg& b) {
  return engine::compare(Op::Lt, a, b, true);
}
bool operator>=(const SymIntArg& a, const SymIntArg& b) {
  return engine::compare(Op::Le, a, b, true);
}

}  // namespace heddle
