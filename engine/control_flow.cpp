#include "heddle/control_flow.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <optional>
#include <set>

#include "engine/region_trace.h"
#include "heddle/error.h"
#include "ir/op.h"

namespace heddle {

namespace engine {
namespace {

using detail::Leaves;

/// Runs `trace`, which adds a call to the innermost trace; when it throws, everything is as before.
template <typename F>
void all_or_nothing(const base::Location& where, F&& trace) {
  Trace& outer = *current_trace();
  const Trace::Checkpoint before = outer.checkpoint();
  outer.builder().context.location = where;
  try {
    trace(outer);
  } catch (...) {
    outer.rollback(before);
    throw;
  }
}

std::vector<ir::TensorMeta> plain_metas(std::span<const ir::Value> values) {
  std::vector<ir::TensorMeta> metas;
  for (const ir::Value& value : values)
    metas.push_back(
        ir::TensorMeta::of(value.meta().dtype, value.meta().sizes, value.meta().device));
  return metas;
}

std::vector<ir::Value> values_of(Trace& trace, std::span<const Tensor> tensors,
                                 const base::Location& where) {
  std::vector<ir::Value> values;
  for (const Tensor& tensor : tensors) values.push_back(trace.value_of(tensor, where));
  return values;
}

std::vector<Tensor> tensors_in(const Leaves& leaves) {
  std::vector<Tensor> tensors;
  for (const Leaves::Leaf& leaf : leaves.leaves)
    if (leaf.tensor != nullptr) tensors.push_back(*leaf.tensor);
  return tensors;
}

const ir::Node* call(Trace& outer, std::string_view op, std::vector<ir::Value> operands,
                     std::span<const ir::Value> captured, ir::Attrs attrs,
                     const base::Location& where) {
  operands.insert(operands.end(), captured.begin(), captured.end());
  outer.builder().context.location = where;
  return outer.call_regions(op, operands, std::move(attrs));
}

[[noreturn]] void fail_structure(std::string what, const base::Location& where,
                                 std::string expected, std::string got) {
  throw StructureError({.what = std::move(what),
                        .where = where.to_string(),
                        .expected = std::move(expected),
                        .got = std::move(got)});
}

/// A size that bodies return is no result of the call: it is the same in all of them, or before and after a loop.
void check_sizes(std::string_view what, std::span<const Leaves::Leaf> expected,
                 std::span<const Leaves::Leaf> got, const base::Location& where) {
  for (std::size_t k = 0; k < expected.size() && k < got.size(); ++k) {
    if (expected[k].size == nullptr || got[k].size == nullptr) continue;
    const ir::SymExpr a = to_expr(*expected[k].size);
    const ir::SymExpr b = to_expr(*got[k].size);
    if (a != b) fail_structure(std::string(what), where, a.to_string(), b.to_string());
  }
}

// Regions that run once.

[[noreturn]] void fail_aliasing(const RegionTrace& region, const base::Location& where,
                                std::string what) {
  throw AliasingError({.what = region.label() + ": " + what,
                       .where = where.to_string(),
                       .expected = "storage of its own: copy one of them with clone()",
                       .got = "the same storage"});
}

void check_operand_storages(const RegionTrace& region, std::span<const ir::Value> operands,
                            const base::Location& where) {
  for (std::size_t a = 0; a < operands.size(); ++a)
    for (std::size_t b = a + 1; b < operands.size(); ++b)
      if (operands[a] != operands[b] && operands[a].meta().storage == operands[b].meta().storage)
        fail_aliasing(region, where, fmt::format("operands {} and {} share storage", a, b));
}

void check_result_storages(RegionTrace& region, std::span<const ir::Value> results,
                           const base::Location& where) {
  const auto inputs = region.trace().builder().inputs();
  for (std::size_t k = 0; k < results.size(); ++k) {
    for (std::size_t j = 0; j < inputs.size(); ++j)
      if (results[k].meta().storage == inputs[j].meta().storage)
        fail_aliasing(region, where, fmt::format("result {} and operand {} share storage", k, j));
    for (std::size_t j = 0; j < k; ++j)
      if (results[k].meta().storage == results[j].meta().storage)
        fail_aliasing(region, where, fmt::format("results {} and {} share storage", j, k));
  }
}

/// Values of the leaves, each once.
std::vector<ir::Value> distinct(std::span<const ir::Value> values) {
  std::vector<ir::Value> slots;
  for (const ir::Value& value : values)
    if (std::ranges::find(slots, value) == slots.end()) slots.push_back(value);
  return slots;
}

/// What the body keeps, as further results; in a strict region only the first of each storage.
std::vector<ir::Value> extra_results(RegionTrace& region, std::span<const ir::Value> slots,
                                     bool strict) {
  std::set<ir::StorageId> storages;
  for (const ir::Value& input : region.trace().builder().inputs())
    storages.insert(input.meta().storage);
  for (const ir::Value& slot : slots) storages.insert(slot.meta().storage);
  std::vector<ir::Value> extra;
  for (const ir::Value& leak : region.leaks())
    if (storages.insert(leak.meta().storage).second || !strict) extra.push_back(leak);
  return extra;
}

void drop_unused(RegionTrace& region, std::vector<ir::Value>& operands,
                 std::span<const ir::Value> results) {
  std::set<ir::Value> used(results.begin(), results.end());
  for (const ir::NodePtr& node : region.trace().builder().nodes()) {
    used.insert(node->inputs().begin(), node->inputs().end());
    used.insert(node->after().begin(), node->after().end());
  }
  std::vector<ir::Value> kept;
  std::vector<ir::Value> dropped;
  for (std::size_t k = 0; k < operands.size(); ++k) {
    if (used.contains(region.arguments()[k]))
      kept.push_back(operands[k]);
    else
      dropped.push_back(region.arguments()[k]);
  }
  region.trace().builder().drop_inputs(dropped);
  operands = std::move(kept);
}

void invoke(Trace& outer, const RegionOptions& options, std::span<const Tensor> tensors,
            const detail::Body& body, const base::Location& where) {
  std::vector<ir::Value> operands = values_of(outer, tensors, where);
  const std::vector<ir::Value> given = operands;
  RegionTrace region("region " + options.name, options.name, plain_metas(operands), body, where,
                     RegionTrace::Scope::Own);
  if (!options.allow_side_effects) region.refuse_leaks();
  const std::vector<ir::Value> slots = distinct(region.values());
  std::vector<ir::Value> results = slots;
  for (const ir::Value& extra : extra_results(region, slots, options.strict))
    results.push_back(extra);
  if (options.strict) check_result_storages(region, results, where);
  if (!options.keep_unused) drop_unused(region, operands, results);
  std::vector<ir::Value> captured;
  for (const Trace::Capture& capture : region.captures()) captured.push_back(capture.outer);
  if (options.strict) {
    std::vector<ir::Value> all = operands;
    all.insert(all.end(), captured.begin(), captured.end());
    check_operand_storages(region, all, where);
  }
  for (const ir::Value& result : results) {
    const bool input = std::ranges::count(region.trace().builder().inputs(), result) != 0;
    region.add_output(input ? region.trace().builder().emit("alias", {result}) : result);
  }
  // Of an equal body that was there before only that one stays.
  std::vector<ir::Dims> sizes;
  for (const ir::Value& result : results) sizes.push_back(result.meta().sizes);
  const ir::Node* node =
      call(outer, "invoke", std::move(operands), captured, {{"body", region.finish()}}, where);
  const auto slot_of = [&](ir::Value value) {
    const auto at = std::ranges::find(results, value) - results.begin();
    return node->value(static_cast<std::uint32_t>(at));
  };
  region.name_late_sizes(sizes, *node);
  for (std::size_t k = 0; k < region.leaves().size(); ++k)
    region.repoint(k, slot_of(region.values()[k]));
  for (std::size_t k = slots.size(); k < results.size(); ++k)
    region.repoint_kept(results[k], node->value(static_cast<std::uint32_t>(k)));
  region.repoint_inputs(given);
}

// Branches.

void cond(Trace& outer, const Arg& predicate, std::span<const Tensor> tensors,
          const detail::Body& then_body, const detail::Body& else_body,
          const base::Location& where) {
  const ir::Value chosen = outer.value_of(predicate.tensor, where);
  std::vector<ir::Value> operands = values_of(outer, tensors, where);
  const std::vector<ir::TensorMeta> metas = plain_metas(operands);
  RegionTrace yes("cond then", "then", metas, then_body, where);
  yes.refuse_leaks();
  RegionTrace no("cond else", "else", metas, else_body, where);
  no.refuse_leaks();
  if (yes.structure() != no.structure())
    fail_structure("cond: the bodies return different structures", where, yes.structure(),
                   no.structure());
  check_sizes("cond: a size that the bodies return", yes.leaves(), no.leaves(), where);
  const std::vector<ir::Value> captured = share_signature(yes, no);
  std::vector<std::pair<ir::Value, ir::Value>> slots;
  std::vector<std::uint32_t> slot_of;
  for (std::size_t k = 0; k < yes.values().size(); ++k) {
    const std::pair slot(yes.values()[k], no.values()[k]);
    const auto at = std::ranges::find(slots, slot) - slots.begin();
    slot_of.push_back(static_cast<std::uint32_t>(at));
    if (static_cast<std::size_t>(at) < slots.size()) continue;
    slots.push_back(slot);
    yes.add_fresh_output(slot.first);
    no.add_fresh_output(slot.second);
  }
  std::vector<ir::Value> given{chosen};
  given.insert(given.end(), operands.begin(), operands.end());
  const ir::Node* node = call(outer, "cond", std::move(given), captured,
                              {{"then", yes.finish()}, {"else", no.finish()}}, where);
  for (std::size_t k = 0; k < slot_of.size(); ++k) yes.repoint(k, node->value(slot_of[k]));
  yes.repoint_inputs(operands);
  no.repoint_inputs(operands);
}

// Loops. Each leaf has a slot of its own: two handles of one value part in the next iteration.

/// The sizes of what a loop carries: those that change between iterations have symbols, by which the bodies are traced.
class LoopSizes {
 public:
  explicit LoopSizes(std::vector<ir::TensorMeta> start) : start_(std::move(start)), now_(start_) {
    for (std::size_t k = 0; k < start_.size(); ++k)
      for (std::size_t d = 0; d < start_[k].sizes.size(); ++d) places_.push_back({k, d});
  }

  /// What the bodies are traced on.
  const std::vector<ir::TensorMeta>& arguments() const { return now_; }

  /// Whether a body that was traced on arguments() changes other sizes than these say. give_symbols() has them say it then: places that
  /// start with the same size and go on with the same share a symbol, until a body gives them different ones.
  bool learn(const RegionTrace& body, const ir::ShapeEnv& env) {
    bool learnt = false;
    std::vector<ir::Value> made;
    for (std::size_t k = 0; k < body.leaves().size(); ++k)
      if (body.leaves()[k].tensor != nullptr) made.push_back(body.values()[k]);
    std::map<std::uint32_t, ir::SymExpr> next_of;
    for (Place& place : places_) {
      const ir::SymExpr* next = next_size(made, place);
      if (next == nullptr) return false;
      place.next = *next;
      place.is_new = place.group == 0 && changes(place, env);
      const bool differs =
          place.group != 0 && next_of.try_emplace(place.group, *next).first->second != *next;
      learnt = learnt || place.is_new || differs;
    }
    return learnt;
  }

  void give_symbols(ir::ShapeEnv& env) {
    using Key = std::pair<std::string, std::string>;
    std::map<Key, std::uint32_t> parts;  ///< of groups, by next size
    std::map<Key, std::uint32_t> alike;  ///< by start and next size
    std::uint32_t count = 0;
    const auto number = [&](std::map<Key, std::uint32_t>& groups, Key key) {
      const auto [known, is_first] = groups.try_emplace(std::move(key), count + 1);
      if (is_first) ++count;
      return known->second;
    };
    for (Place& place : places_) {
      if (place.group == 0) continue;
      place.group = number(parts, {std::to_string(place.group), place.next.to_string()});
      alike.try_emplace({start(place).to_string(), place.next.to_string()}, place.group);
    }
    for (Place& place : places_)
      if (place.is_new)
        place.group = number(alike, {start(place).to_string(), place.next.to_string()});
    std::vector<ir::SymExpr> symbols;
    for (std::uint32_t k = 0; k < count; ++k) symbols.push_back(env.fresh_unbacked());
    now_ = start_;
    for (const Place& place : places_)
      if (place.group != 0) now_[place.k].sizes[place.d] = symbols[place.group - 1];
    for (ir::TensorMeta& meta : now_)
      meta = ir::TensorMeta::of(meta.dtype, meta.sizes, meta.device);
    changing_.clear();
    for (const ir::SymExpr& symbol : symbols) changing_.insert(symbol.symbol());
  }

 private:
  struct Place {
    std::size_t k, d;         ///< carried value, dimension
    std::uint32_t group = 0;  ///< of places that share a symbol; 0: the size stays
    bool is_new = false;
    ir::SymExpr next{};  ///< of the body that was traced last
  };

  const ir::SymExpr& now(const Place& place) const { return now_[place.k].sizes[place.d]; }
  const ir::SymExpr& start(const Place& place) const { return start_[place.k].sizes[place.d]; }

  /// Null where the body returns another dtype or rank, which inference refuses.
  const ir::SymExpr* next_size(std::span<const ir::Value> made, const Place& place) const {
    if (place.k >= made.size()) return nullptr;
    const ir::TensorMeta& meta = made[place.k].meta();
    const bool fits = meta.dtype == now_[place.k].dtype && meta.rank() == now_[place.k].rank();
    return fits ? &meta.sizes[place.d] : nullptr;
  }

  bool changes(const Place& place, const ir::ShapeEnv& env) const {
    if (place.next == now(place)) return false;
    std::vector<base::Symbol> symbols;
    place.next.collect_symbols(symbols);
    const bool varies = std::ranges::any_of(
        symbols, [&](const base::Symbol& symbol) { return changing_.contains(symbol); });
    return varies || !env.expect({base::Predicate::Op::Eq, now(place), place.next}).value_or(false);
  }

  std::vector<ir::TensorMeta> start_, now_;
  std::vector<Place> places_;
  std::set<base::Symbol> changing_;
};

/// @param stacks  the body returns an element of the result beside the next state
void while_loop(Trace& outer, const Leaves& start, const detail::Body& condition,
                const detail::Body& body, bool stacks, const WhileOptions& options,
                const base::Location& where) {
  const std::vector<ir::Value> carried = values_of(outer, tensors_in(start), where);
  LoopSizes sizes(plain_metas(carried));
  std::optional<RegionTrace> traced_condition, traced_body;
  for (const Trace::Checkpoint before = outer.checkpoint();;) {
    traced_condition.emplace("while_loop condition", "condition", sizes.arguments(), condition,
                             where);
    traced_condition->refuse_leaks();
    traced_body.emplace("while_loop body", "body", sizes.arguments(), body, where);
    traced_body->refuse_leaks();
    if (options.fixed_sizes || !sizes.learn(*traced_body, outer.builder().env())) break;
    traced_body.reset();
    traced_condition.reset();
    outer.rollback(before);
    sizes.give_symbols(outer.builder().env());
  }
  RegionTrace& asked = *traced_condition;
  RegionTrace& run = *traced_body;
  const bool fits = stacks ? run.structure().starts_with("(" + start.structure + ", ")
                           : run.structure() == start.structure;
  if (!fits)
    fail_structure("while_loop: the body returns another structure than the loop starts with",
                   where, start.structure, run.structure());
  check_sizes("while_loop: a size that it carries", start.leaves, run.leaves(), where);
  const std::vector<ir::Value> captured = share_signature(asked, run);
  for (const ir::Value& value : asked.values()) asked.add_fresh_output(value);
  for (std::size_t k = 0; k < run.leaves().size(); ++k)
    if (run.leaves()[k].tensor != nullptr) run.add_fresh_output(run.values()[k]);
  const ir::Node* node = call(outer, "while_loop", carried, captured,
                              {{"condition", asked.finish()},
                               {"body", run.finish()},
                               {"carried", static_cast<std::int64_t>(carried.size())}},
                              where);
  std::uint32_t slot = 0;
  for (std::size_t k = 0; k < run.leaves().size(); ++k)
    if (run.leaves()[k].tensor != nullptr) run.repoint(k, node->value(slot++));
  run.repoint_inputs(carried);
  asked.repoint_inputs(carried);
}

ir::SymExpr length_of(std::span<const ir::Value> scanned, const ScanOptions& options,
                      std::string_view op, const base::Location& where) {
  for (const ir::Value& value : scanned)
    if (value.meta().rank() == 0)
      throw ShapeError({.what = fmt::format("{}: scanned tensor", op),
                        .where = where.to_string(),
                        .expected = "a leading dimension",
                        .got = value.meta().to_string()});
  if (options.length) return to_expr(*options.length);
  if (scanned.empty())
    throw ArgumentError({.what = fmt::format("{}: number of iterations", op),
                         .where = where.to_string(),
                         .expected = "ScanOptions::length, or a tensor to scan",
                         .got = "neither"});
  return scanned[0].meta().sizes[0];
}

void scan(Trace& outer, const Leaves& start, std::span<const Tensor> tensors,
          const detail::Body& body, const ScanOptions& options, bool is_map,
          const base::Location& where) {
  const std::string label = is_map ? "map" : "scan";
  // A map over nothing counts its iterations, as a scan that carries nothing does.
  const std::string op = is_map && !tensors.empty() ? "map" : "scan";
  std::vector<ir::Value> operands = values_of(outer, tensors_in(start), where);
  const std::size_t carried = operands.size();
  const std::vector<ir::Value> scanned = values_of(outer, tensors, where);
  const ir::SymExpr length = length_of(scanned, options, label, where);
  operands.insert(operands.end(), scanned.begin(), scanned.end());
  const std::size_t given = operands.size();
  if (options.count && op == "scan") operands.push_back(outer.value_of(*options.count, where));
  std::vector<ir::TensorMeta> metas = plain_metas(operands);
  for (std::size_t k = carried; k < given; ++k)
    metas[k] = ir::TensorMeta::of(metas[k].dtype,
                                  ir::Dims(metas[k].sizes.begin() + 1, metas[k].sizes.end()),
                                  metas[k].device);
  const auto of_slices = [&](std::span<const Tensor> all) { return body(all.first(given)); };
  RegionTrace run(label + " body", "body", metas, of_slices, where);
  run.refuse_leaks();
  if (!is_map && !run.structure().starts_with("(" + start.structure + ", "))
    fail_structure("scan: the body returns another carry than the scan starts with", where,
                   start.structure, run.structure());
  check_sizes("scan: a size that it carries", start.leaves, run.leaves(), where);
  for (std::size_t k = 0; k < run.leaves().size(); ++k)
    if (run.leaves()[k].tensor != nullptr) run.add_fresh_output(run.values()[k]);
  std::vector<ir::Value> captured;
  for (const Trace::Capture& capture : run.captures()) captured.push_back(capture.outer);
  ir::Attrs attrs{{"body", run.finish()}, {"scanned", static_cast<std::int64_t>(scanned.size())}};
  if (op == "scan") {
    attrs.emplace("carried", static_cast<std::int64_t>(carried));
    attrs.emplace("length", length);
    attrs.emplace("reverse", options.reverse);
    attrs.emplace("counted", options.count.has_value());
  }
  const ir::Node* node = call(outer, op, operands, captured, std::move(attrs), where);
  std::uint32_t slot = 0;
  for (std::size_t k = 0; k < run.leaves().size(); ++k)
    if (run.leaves()[k].tensor != nullptr) run.repoint(k, node->value(slot++));
  run.repoint_inputs(std::span(operands).first(carried));
}

}  // namespace
}  // namespace engine

namespace detail {

bool tracing() { return engine::current_trace() != nullptr; }

void trace_invoke(const RegionOptions& options, std::span<const Tensor> operands,
                  const Body& body) {
  const base::Location where = engine::location_of(options.where);
  engine::all_or_nothing(
      where, [&](auto& outer) { engine::invoke(outer, options, operands, body, where); });
}

void trace_cond(const Arg& predicate, std::span<const Tensor> operands, const Body& then_body,
                const Body& else_body) {
  const base::Location where = engine::location_of(predicate.where);
  engine::all_or_nothing(where, [&](auto& outer) {
    engine::cond(outer, predicate, operands, then_body, else_body, where);
  });
}

void trace_while(const Leaves& start, const Body& condition, const Body& body, bool stacks,
                 const WhileOptions& options) {
  const base::Location where = engine::location_of(options.where);
  engine::all_or_nothing(where, [&](auto& outer) {
    engine::while_loop(outer, start, condition, body, stacks, options, where);
  });
}

void trace_scan(const Leaves& start, std::span<const Tensor> scanned, const Body& body,
                const ScanOptions& options, bool is_map) {
  const base::Location where = engine::location_of(options.where);
  engine::all_or_nothing(where, [&](auto& outer) {
    engine::scan(outer, start, scanned, body, options, is_map, where);
  });
}

std::int64_t scan_length(std::span<const Tensor> scanned, const ScanOptions& options) {
  const std::int64_t length = options.length    ? options.length->value()
                              : scanned.empty() ? 0
                                                : scanned[0].sizes()[0];
  if (length > 0) return length;
  throw ArgumentError({.what = "scan: number of iterations outside a trace",
                       .where = engine::location_of(options.where).to_string(),
                       .expected = "1 or more",
                       .got = std::to_string(length)});
}

Tensor slice_at(const Tensor& tensor, std::int64_t at) {
  return squeeze(slice(tensor, 0, at, at + 1), 0);
}

Tensor zeros_like(const Tensor& tensor) {
  return Tensor::zeros(tensor.dtype(), Sizes(tensor.sizes().begin(), tensor.sizes().end()));
}

Tensor stacked(const std::vector<Tensor>& elements) {
  std::vector<Tensor> rows;
  for (const Tensor& element : elements) rows.push_back(unsqueeze(element, 0));
  return concat(rows, 0);
}

}  // namespace detail
}  // namespace heddle
