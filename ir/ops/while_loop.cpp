// while_loop: runs a graph on its own results as long as another one says so.
//
//   operands   the first `carried` are where the loop starts, the others the same in each iteration
//   condition  graph of the operands: bool[], asked before each iteration
//   body       graph of the operands: the next carried values, then the elements of further results
//   results    the carried values when the condition said false, then for each other value of the body all its elements stacked in
//              the order of the iterations: [u, ...], where only the run tells u, how many there were
//
// Constraints. infer() checks them in this order.
//   C1  0 <= carried <= number of operands
//   C2  both graphs take the operands, have no parameters and write nothing back
//   C3  the condition gives one bool
//   C4  the body gives `carried` values of the dtypes and sizes that the loop starts with, but for sizes that change
//   C5  the other values of the body have the same sizes in each iteration
//
// Sizes that change. Where an input of the body has a symbol of its own that only the run tells, f32[u0, 4], its result may have
// another size there, f32[u0+1, 4], and the next iteration begins with that. Such a symbol
//   C6  is the whole size wherever inputs mention it, of carried values alone, and has the same next size at all of these places
//   C7  has a symbol of its own in the condition at the same places
// and the loop's results have a size in its place that only the run tells.
//
// Without results the call gives a token, u8[0], that order can name.
// Memory: the results are fresh.
// Source: StableHLO spec, "while"; ONNX Loop-13 for the stacked results.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "ir/analysis/regions.h"
#include "ir/analysis/unbacked.h"
#include "ir/ops/regions.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> arguments_while_loop(std::span<const Value> inputs, const Attrs&) {
  return plain_arguments(inputs, 0);
}

constexpr const char* kKeepsShape = "C4 the body keeps the shape of carried value";

/// The sizes of carried values that change between iterations.
class ChangingSizes {
 public:
  /// Checks C6 and C7.
  ChangingSizes(const InferContext& context, const Graph& condition, const Graph& body,
                std::size_t carried)
      : context_(context), body_(body), next_(changing_sizes(body, carried)) {
    for (const auto& [symbol, size] : next_) changing_.insert(symbol);
    if (next_.empty()) return;
    for_each_place(
        [&](std::size_t k, std::size_t d) { check_place(condition, k, d, k < carried); });
    for_each_place([&](std::size_t k, std::size_t d) { check_condition(condition, k, d); });
    for (const auto& [symbol, size] : next_) last_.emplace(symbol, context.env.fresh_unbacked());
  }

  /// Checks C4 of the sizes of carried value `k` that do not change.
  void check_steady(std::size_t k, const TensorMeta& start, const TensorMeta& result) const {
    const Dims& now = sizes_of_input(body_, k);
    const Dims& next = body_.outputs()[k].meta().sizes;
    const std::set<base::Symbol> late = late_sizes(context_, body_);
    for (std::size_t d = 0; d < now.size(); ++d) {
      if (is_changing(now[d])) continue;
      if (mentions(next[d], late) || mentions(next[d], changing_))
        fail(fmt::format("C4 carried value {}", k), "the same sizes in each iteration",
             body_.outputs()[k].meta().to_string());
      check_carried_size(context_, start, result, k, d, kKeepsShape);
    }
  }

  /// Checks C5 of value `k` of the body.
  void check_element(std::size_t k) const {
    check_same_each_time(context_, body_, k, "C5 result");
    for (const SymExpr& size : body_.outputs()[k].meta().sizes)
      if (mentions(size, changing_))
        fail(fmt::format("C5 result {}", k), "the same sizes in each iteration",
             body_.outputs()[k].meta().to_string());
  }

  /// The type of result `k` of a loop that starts with `start`.
  TensorMeta result(std::size_t k, const TensorMeta& start) const {
    Dims sizes = start.sizes;
    for (std::size_t d = 0; d < sizes.size(); ++d)
      if (const SymExpr& now = sizes_of_input(body_, k)[d]; is_changing(now))
        sizes[d] = last_.at(now.symbol());
    return TensorMeta::of(start.dtype, std::move(sizes));
  }

 private:
  static const Dims& sizes_of_input(const Graph& graph, std::size_t k) {
    return graph.inputs()[k].meta().sizes;
  }
  bool is_changing(const SymExpr& size) const {
    return size.is_symbol() && changing_.contains(size.symbol());
  }
  [[noreturn]] void fail(const std::string& label, const std::string& expected,
                         const std::string& got) const {
    context_.fail_shape(label, expected, got);
  }

  template <typename F>
  void for_each_place(F&& check) const {
    for (std::size_t k = 0; k < body_.inputs().size(); ++k)
      for (std::size_t d = 0; d < sizes_of_input(body_, k).size(); ++d) check(k, d);
  }

  void check_place(const Graph& condition, std::size_t k, std::size_t d, bool carried) {
    const SymExpr& now = sizes_of_input(body_, k)[d];
    if (!mentions(now, changing_)) return;
    const std::string place = fmt::format("C6 size {} of operand {}", d, k);
    if (!carried || !is_changing(now))
      fail(place, "a carried value's whole size, as it changes", now.to_string());
    const SymExpr& wanted = next_.at(now.symbol());
    const SymExpr& next = body_.outputs()[k].meta().sizes[d];
    if (next != wanted)
      fail(place, fmt::format("{} in the next iteration, as elsewhere", wanted.to_string()),
           next.to_string());
    const SymExpr& asked = sizes_of_input(condition, k)[d];
    if (!asked.is_symbol() || !is_unbacked(asked))
      fail(fmt::format("C7 size {} of the condition's operand {}", d, k), "a symbol, as it changes",
           asked.to_string());
    in_condition_.emplace(asked.symbol(), now.symbol());
  }

  void check_condition(const Graph& condition, std::size_t k, std::size_t d) const {
    const SymExpr& now = sizes_of_input(body_, k)[d];
    const SymExpr& asked = sizes_of_input(condition, k)[d];
    for (const auto& [symbol, changes] : in_condition_)
      if (mentions(asked, {symbol}) && !(is_changing(now) && now.symbol() == changes))
        fail(fmt::format("C7 size {} of the condition's operand {}", d, k), now.to_string(),
             asked.to_string());
  }

  const InferContext& context_;
  const Graph& body_;
  base::SymbolExprs next_;
  std::set<base::Symbol> changing_;
  base::SymbolExprs last_;  ///< when the condition said false
  std::map<base::Symbol, base::Symbol>
      in_condition_;  ///< its symbols, and what the body calls them
};

std::vector<TensorMeta> infer_while_loop(const InferContext& context) {
  const std::int64_t carried = context.integer("carried");
  if (carried < 0 || carried > static_cast<std::int64_t>(context.inputs.size()))
    context.fail_shape("C1 carried", "at most the number of operands", std::to_string(carried));
  const Graph& condition = region(context, "condition");
  const Graph& body = region(context, "body");
  std::vector<TensorMeta> given = arguments_while_loop(context.inputs, context.attrs);
  check_region(context, condition, given, "C2 condition");
  const base::SymbolExprs sizes = check_region(context, body, given, "C2 body");
  if (condition.outputs().size() != 1 || condition.outputs()[0].meta().dtype != boolean ||
      condition.outputs()[0].meta().rank() != 0)
    context.fail_dtype("C3 condition", "one bool[]",
                       condition.outputs().size() != 1 ? std::to_string(condition.outputs().size())
                                                       : condition.outputs()[0].meta().to_string());
  const auto count = static_cast<std::size_t>(carried);
  if (body.outputs().size() < count)
    context.fail_shape("C4 carried values", std::to_string(count),
                       std::to_string(body.outputs().size()));
  for (std::size_t k = 0; k < count; ++k)
    check_carried_type(context, given[k], region_result(body, k, sizes), k, kKeepsShape);
  const ChangingSizes changing(context, condition, body, count);
  std::vector<TensorMeta> results = given;
  results.resize(count);
  std::optional<SymExpr> iterations;
  for (std::size_t k = 0; k < body.outputs().size(); ++k) {
    const TensorMeta result = region_result(body, k, sizes);
    if (k < count) {
      changing.check_steady(k, given[k], result);
      results[k] = changing.result(k, given[k]);
      continue;
    }
    changing.check_element(k);
    if (!iterations) iterations = context.env.fresh_unbacked();
    Dims stacked{*iterations};
    stacked.insert(stacked.end(), result.sizes.begin(), result.sizes.end());
    results.push_back(TensorMeta::of(result.dtype, std::move(stacked)));
  }
  return or_token(std::move(results));
}

/// Copies `element` behind those that `stack` has.
void append(std::vector<unsigned char>& stack, const Literal& element) {
  const Literal plain = element.contiguous();
  const auto* data = static_cast<const unsigned char*>(plain.data());
  stack.insert(stack.end(), data, data + plain.bytes());
}

std::vector<Literal> evaluate_while_loop(const EvalContext& context) {
  const auto count = static_cast<std::size_t>(context.node.integer("carried"));
  std::vector<Literal> values(context.inputs.begin(), context.inputs.end());
  std::vector<std::vector<unsigned char>> stacks(context.node.graph("body").outputs().size() -
                                                 count);
  std::int64_t iterations = 0;
  for (; evaluate_region(context, "condition", values)[0].at_int(0) != 0; ++iterations) {
    std::vector<Literal> next = evaluate_region(context, "body", values);
    for (std::size_t k = 0; k < stacks.size(); ++k) append(stacks[k], next[count + k]);
    for (std::size_t k = 0; k < count; ++k) values[k] = std::move(next[k]);
  }
  values.resize(count);
  for (std::size_t k = 0; k < stacks.size(); ++k) {
    Sizes sizes = context.concrete(
        std::span(context.node.output(static_cast<std::uint32_t>(count + k)).sizes).subspan(1));
    sizes.insert(sizes.begin(), iterations);
    Literal stacked(context.node.output(static_cast<std::uint32_t>(count + k)).dtype, sizes);
    std::copy(stacks[k].begin(), stacks[k].end(), static_cast<unsigned char*>(stacked.data()));
    values.push_back(std::move(stacked));
  }
  return or_token(context, std::move(values));
}

}  // namespace

OpDef while_loop_op() {
  OpDef op;
  op.name = "while_loop";
  op.operands = {{"operands", OperandSpec::Arity::Variadic}};
  op.attrs = {{"condition", AttrKind::Graph, std::nullopt},
              {"body", AttrKind::Graph, std::nullopt},
              {"carried", AttrKind::Int, std::nullopt}};
  op.outputs = -1;
  op.infer = infer_while_loop;
  op.evaluate = evaluate_while_loop;
  op.region_arguments = arguments_while_loop;
  op.lowering.region = RegionKind::While;
  return op;
}

}  // namespace heddle::ir::ops
