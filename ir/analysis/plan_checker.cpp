#include "ir/analysis/plan_checker.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>
#include <map>

#include "heddle/error.h"
#include "ir/analysis/byte_history.h"
#include "ir/analysis/collectives.h"
#include "ir/analysis/plan_nodes.h"
#include "ir/analysis/plan_storages.h"
#include "ir/analysis/regions.h"
#include "ir/op.h"

namespace heddle::ir {

namespace {

using Role = PlanBuffer::Role;
using Write = ByteHistory::Write;

bool is_arena(Role role) { return role == Role::Intermediate || role == Role::Workspace; }
bool is_there_from_the_start(Role role) {
  return role == Role::Input || role == Role::Parameter || role == Role::Constant;
}

[[noreturn]] void fail(std::string rule, std::string where, std::string expected, std::string got) {
  throw InvariantError({.what = "plan: " + std::move(rule),
                        .where = std::move(where),
                        .expected = std::move(expected),
                        .got = std::move(got)});
}

/// Of which no kernel computes an element.
bool is_given(const Node& node) { return node.is_argument() || node.op_name() == "const"; }

std::string step_name(const ScheduleRecord& record, StepId step) {
  if (step == kNone) return "the start";
  return fmt::format("{} (step {})", record.kernels[record.steps[step].kernel].name, step);
}

[[noreturn]] void fail_order(const ScheduleRecord& record, StepId from, StepId to,
                             const Node& first, const Node& then,
                             const char* rule = "P6 order edges hold") {
  fail(rule, fmt::format("{} and {}", step_name(record, from), step_name(record, to)),
       fmt::format("%{} before %{}", first.name(), then.name()),
       from == to ? "one kernel" : "no such order");
}

/// Whether another node than `first` leads to `then` by data, of those that kernel `step` computes by themselves. A
/// view is one of them where it is stored; else it is part of who reads it.
bool reads_of_kernel(const PlanNodes& nodes, StepId step, const Node* first, const Node* then) {
  return std::ranges::any_of(nodes.computed_by(step), [&](const Node* other) {
    if (other == first || other == then || is_given(*other)) return false;
    const bool computes = other->op().lowering.view == nullptr || nodes.stores(step, other);
    return computes && nodes.leads_to(other, then);
  });
}

/// after(...) of `graph`, by the nodes that the steps compute. Where data leads the same way, the reads of the
/// steps in between are what orders them. A kernel that holds both holds what the second one reads anyway beside the first.
void check_weak_edges(const Graph& graph, const PlanNodes& nodes, const ScheduleRecord& record,
                      const HappensBefore& before) {
  const auto check = [&](const Node* first, const Node* then) {
    for (const StepId from : nodes.computing(first)) {
      for (const StepId to : nodes.computing(then)) {
        if (before(from, to) || (from == to && reads_of_kernel(nodes, to, first, then))) continue;
        fail_order(record, from, to, *first, *then);
      }
    }
  };
  for (const NodePtr& node : graph.nodes())
    for (const Value& named : node->after())
      for (const Node* first : nodes.behind(named.node))
        for (const Node* then : nodes.evaluating(node.get()))
          if (!nodes.leads_to(first, then)) check(first, then);
}

void check_collectives(const Graph& graph, const PlanNodes& nodes, const ScheduleRecord& record,
                       const HappensBefore& before) {
  const Node* last = nullptr;
  for (const Node* node : begun_collectives(graph)) {
    if (nodes.computing(node).empty()) continue;
    if (last != nullptr && !nodes.leads_to(last, node))
      for (const StepId from : nodes.computing(last))
        for (const StepId to : nodes.computing(node))
          if (!before(from, to))
            fail_order(record, from, to, *last, *node,
                       "P12 collectives begin in the graph's order");
    last = node;
  }
}

void check_effects(const Graph& graph, const PlanNodes& nodes, const ScheduleRecord& record) {
  for (const NodePtr& node : graph.nodes()) {
    if (node->is_argument() || is_pure(*node)) continue;
    const StepSet& steps = nodes.computing(node.get());
    if (steps.size() == 1) continue;
    fail("P14 each node with effects runs in one step",
         fmt::format("%{} ({})", node->name(), node->op_name()), "one step",
         steps.empty()
             ? "none"
             : fmt::format("{} and {}", step_name(record, steps[0]), step_name(record, steps[1])));
  }
}

class PlanChecker {
 public:
  explicit PlanChecker(const PlanUnderCheck& plan)
      : plan_(plan),
        record_(plan.record),
        nodes_(plan.graph, plan.record),
        memory_(plan.record.buffers.size() + 1),
        found_(plan.record.steps.size()) {
    for (BufferId b = 0; b < record_.buffers.size(); ++b) roots_.push_back(alias_root(record_, b));
  }

  void run() {
    check_edges();
    check_aliases();
    check_arena();
    start_memory();
    for (StepId step = 0; step < record_.steps.size(); ++step) {
      for (const BufferId buffer : record_.steps[step].reads) read(step, buffer);
      for (const BufferId buffer : record_.steps[step].writes) write(step, buffer);
      check_operands(step);
    }
    check_weak_edges(plan_.graph, nodes_, record_, plan_.before);
    check_collectives(plan_.graph, nodes_, record_, plan_.before);
    check_effects(plan_.graph, nodes_, record_);
    check_results();
    check_lifetimes();
    for (const SharedPlace& place : plan_.shared) check_shared(place);
  }

 private:
  std::string name(StepId step) const { return step_name(record_, step); }
  std::string name(const Write& write) const {
    if (write.buffer == kNone) return "nothing";
    return fmt::format("%{} of {}", record_.buffers[write.buffer].value, name(write.step));
  }
  std::int64_t bytes_of(BufferId buffer) const {
    return record_.buffers[buffer].bytes.evaluate(plan_.sizes);
  }

  void check_edges() const {
    for (StepId step = 0; step < record_.steps.size(); ++step)
      for (const PlanEdge& edge : record_.steps[step].edges)
        if (!plan_.before(edge.from, step))
          fail("P1 edges hold", fmt::format("{} and {}", name(edge.from), name(step)),
               fmt::format("the first before the second ({})", edge.weak ? "weak" : "strong"),
               "no such order");
  }

  void check_aliases() const {
    const PlanStorages storages(plan_.graph, record_, nodes_);
    for (BufferId b = 0; b < record_.buffers.size(); ++b) {
      if (roots_[b] == b) continue;
      const PlanBuffer& buffer = record_.buffers[b];
      const PlanBuffer& root = record_.buffers[roots_[b]];
      if (!storages.are_one(buffer.value, root.value))
        fail("P7 aliases share storage in the graph", "%" + buffer.value, "bytes of its own",
             "those of %" + root.value);
    }
  }

  struct Place {
    std::size_t memory;  ///< in memory_: 0 is the arena, each other buffer is alone
    std::int64_t begin;
    std::int64_t end;
  };
  Place place_of(BufferId buffer) const {
    const BufferId root = roots_[buffer];
    const std::int64_t bytes = bytes_of(buffer);
    if (!is_arena(record_.buffers[root].role)) return {root + std::size_t{1}, 0, bytes};
    return {0, plan_.offsets[root], plan_.offsets[root] + bytes};
  }

  void check_arena() const {
    for (const PlanStep& step : record_.steps) {
      for (const auto* list : {&step.reads, &step.writes}) {
        for (const BufferId buffer : *list) {
          const Place place = place_of(buffer);
          if (place.memory == 0 && (place.begin < 0 || place.end > plan_.arena_bytes))
            fail("P11 the arena holds every buffer", "%" + record_.buffers[buffer].value,
                 fmt::format("bytes in [0, {})", plan_.arena_bytes),
                 fmt::format("[{}, {})", place.begin, place.end));
        }
      }
    }
  }

  void start_memory() {
    for (BufferId b = 0; b < record_.buffers.size(); ++b)
      if (roots_[b] == b && is_there_from_the_start(record_.buffers[b].role) && is_used(b))
        memory_[b + 1].write(0, bytes_of(b), {kNone, b});
  }

  bool is_used(BufferId root) {
    if (used_.empty()) {
      used_.assign(record_.buffers.size(), false);
      for (const PlanStep& step : record_.steps)
        for (const auto* list : {&step.reads, &step.writes})
          for (const BufferId buffer : *list) used_[roots_[buffer]] = true;
      for (const BufferId buffer : plan_.outputs) used_[roots_[buffer]] = true;
    }
    return used_[root];
  }

  bool has_ended(const Write& write, StepId step) const {
    return write.step == kNone || write.step == step || plan_.before(write.step, step);
  }

  /// What a kernel reads of its own results it has written before; unless these lie in an operand.
  bool is_own_result(StepId step, BufferId buffer, const Write& last) const {
    const bool holds_it = last.buffer != kNone && roots_[last.buffer] == roots_[buffer];
    return !holds_it && std::ranges::any_of(record_.steps[step].writes, [&](BufferId written) {
      return roots_[written] == roots_[buffer];
    });
  }

  void read(StepId step, BufferId buffer) {
    const Place place = place_of(buffer);
    if (place.begin == place.end) found_[step].push_back(last_write(roots_[buffer]));
    memory_[place.memory].visit(place.begin, place.end, [&](std::int64_t, auto& piece) {
      if (is_own_result(step, buffer, piece.last)) return;
      const std::string where = fmt::format("%{} in {}", record_.buffers[buffer].value, name(step));
      if (piece.last.buffer == kNone || roots_[piece.last.buffer] != roots_[buffer])
        fail("P2 a step finds what its buffer was given", where, "its own bytes", name(piece.last));
      if (!has_ended(piece.last, step))
        fail("P3 steps that may run together touch no same bytes", where,
             "to begin when " + name(piece.last.step) + " has ended", "no such order");
      piece.readers.push_back(step);
      if (std::ranges::find(found_[step], piece.last) == found_[step].end())
        found_[step].push_back(piece.last);
    });
  }

  /// Of a buffer without bytes.
  Write last_write(BufferId root) const {
    const auto found = written_last_.find(root);
    if (found != written_last_.end()) return found->second;
    return is_there_from_the_start(record_.buffers[root].role) ? Write{kNone, root} : Write{};
  }

  void write(StepId step, BufferId buffer) {
    check_may_write(step, buffer);
    written_last_[roots_[buffer]] = {step, buffer};
    const Place place = place_of(buffer);
    memory_[place.memory].visit(place.begin, place.end, [&](std::int64_t, const auto& piece) {
      check_overwrites(step, buffer, piece);
    });
    memory_[place.memory].write(place.begin, place.end, {step, buffer});
  }

  void check_overwrites(StepId step, BufferId buffer, const ByteHistory::Piece& piece) const {
    const std::string where = fmt::format("%{} in {}", record_.buffers[buffer].value, name(step));
    const bool other = piece.last.buffer != kNone && roots_[piece.last.buffer] != roots_[buffer];
    if (!has_ended(piece.last, step) || (piece.last.step == step && step != kNone && other))
      fail("P3 steps that may run together touch no same bytes", where,
           "bytes that nothing else writes", name(piece.last));
    for (const StepId reader : piece.readers) {
      if (reader == step) {
        if (other) check_in_place(step, buffer, piece.last.buffer);
      } else if (!plan_.before(reader, step)) {
        fail("P3 steps that may run together touch no same bytes", where,
             "to begin when " + name(reader) + " has ended", "no such order");
      }
    }
  }

  /// `step` writes `buffer` where it reads `operand`.
  void check_in_place(StepId step, BufferId buffer, BufferId operand) const {
    const PlanStep& planned = record_.steps[step];
    const bool allowed = std::ranges::any_of(planned.may_reuse, [&](const auto& pair) {
      return roots_[planned.reads[pair.first]] == roots_[operand] &&
             roots_[planned.writes[pair.second]] == roots_[buffer];
    });
    const Place from = place_of(operand);
    const Place to = place_of(buffer);
    if (allowed && from.begin == to.begin && from.end == to.end) return;
    fail("P4 operands are overwritten where the kernel may", name(step),
         "%" + record_.buffers[operand].value + " to stay",
         "%" + record_.buffers[buffer].value + " in its bytes");
  }

  void check_may_write(StepId step, BufferId buffer) {
    const PlanBuffer& owner = record_.buffers[roots_[buffer]];
    const bool fixed = owner.role == Role::Parameter || owner.role == Role::Constant;
    if (owner.donated && is_donated(owner.position)) return;
    if (!fixed && (owner.role != Role::Input || written_inputs().contains(owner.position))) return;
    fail("P8 the caller's memory is written as the graph says", name(step),
         "%" + owner.value + " to stay as it is", "a write");
  }

  /// What the graph says of argument `position`.
  bool is_donated(std::uint32_t position) const {
    for (const Value& input : plan_.graph.inputs())
      if (input.node->op_name() != "param" && position-- == 0) return ir::is_donated(input);
    return false;
  }

  /// Arguments that the graph writes back to or overwrites, and what they hold at the end.
  const std::map<std::uint32_t, Value>& written_inputs() {
    if (!written_.empty() || none_written_) return written_;
    std::map<StorageId, std::uint32_t> positions;
    std::map<Value, std::uint32_t> arguments;
    for (const Value& input : plan_.graph.inputs()) {
      if (input.node->op_name() == "param") continue;
      const auto position = static_cast<std::uint32_t>(arguments.size());
      arguments.emplace(input, position);
      positions.emplace(input.meta().storage, position);
    }
    for (const NodePtr& node : plan_.graph.nodes()) {
      for (std::uint32_t k = 0; k < node->outputs().size(); ++k) {
        const auto found = positions.find(node->output(k).storage);
        if (found != positions.end() && alias_of(*node, k).kind == Alias::Kind::Mutates)
          written_[found->second] = node->value(k);
      }
    }
    for (const Graph::WriteBack& write : plan_.graph.write_backs())
      written_[arguments.at(write.target)] = write.source;
    none_written_ = written_.empty();
    return written_;
  }

  /// Copies are transparent: what was first written.
  void resolve(const Write& write, std::vector<Write>& origins) const {
    const bool copied =
        write.step != kNone &&
        record_.kernels[record_.steps[write.step].kernel].kind == PlanKernel::Kind::Copy;
    if (!copied) {
      origins.push_back(write);
      return;
    }
    for (const Write& source : found_[write.step]) resolve(source, origins);
  }

  /// Nodes whose values those that made `writes` computed.
  std::unordered_set<const Node*> made_by(std::span<const Write> writes) const {
    std::vector<Write> origins;
    for (const Write& write : writes) resolve(write, origins);
    std::unordered_set<const Node*> nodes;
    for (const Write& origin : origins) {
      if (origin.buffer == kNone) continue;
      if (origin.step == kNone) {
        nodes.insert(nodes_.named(record_.buffers[origin.buffer].value));
      } else {
        const auto& computed = nodes_.computed_by(origin.step);
        nodes.insert(computed.begin(), computed.end());
      }
    }
    return nodes;
  }

  /// The first node behind `value` that is not at hand; null: all are.
  const Node* missing(const Value& value, const std::unordered_set<const Node*>& at_hand,
                      std::unordered_set<const Node*>& seen) const {
    const Node* node = value.node;
    if (value.meta().count().is_constant(0)) return nullptr;  // nothing to read
    if (!seen.insert(node).second || at_hand.contains(node)) return nullptr;
    const bool computed = !nodes_.computing(node).empty();
    const Alias alias = alias_of(*node, value.index);
    if (alias.kind == Alias::Kind::View) return missing(node->input(alias.operand), at_hand, seen);
    const bool view = node->op().lowering.view != nullptr;
    if (node->inputs().empty()) {
      const bool given = node->is_argument();
      return computed || given ? node : nullptr;
    }
    if (computed && !view) return node;
    for (const Value& input : node->inputs()) {
      const Node* lacks = input ? missing(input, at_hand, seen) : nullptr;
      if (lacks != nullptr) return lacks;
    }
    return nullptr;
  }

  /// Whether `step` reads memory that ever holds the results of `node`; a kernel need not read what it does not
  /// use, such as a tensor of which only the padding is left.
  bool reads_memory_of(StepId step, const Node* node) const {
    std::unordered_set<BufferId> roots;
    for (const StepId maker : nodes_.computing(node))
      for (const BufferId buffer : record_.steps[maker].writes) roots.insert(roots_[buffer]);
    return std::ranges::any_of(record_.steps[step].reads, [&](BufferId buffer) {
      return roots.contains(roots_[buffer]) ||
             nodes_.named(record_.buffers[roots_[buffer]].value) == node;
    });
  }

  /// Whose results may serve as operands of `own`.
  std::unordered_set<const Node*> wanted_by(const std::unordered_set<const Node*>& own) const {
    std::unordered_set<const Node*> wanted;
    std::vector<const Node*> open(own.begin(), own.end());
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      for (const Value& input : node->inputs()) {
        if (!input || !wanted.insert(input.node).second || own.contains(input.node)) continue;
        const bool view = input.node->op().lowering.view != nullptr ||
                          alias_of(*input.node, input.index).kind == Alias::Kind::View;
        if (view || nodes_.computing(input.node).empty()) open.push_back(input.node);
      }
    }
    return wanted;
  }

  void check_operands(StepId step) const {
    const auto& own = nodes_.computed_by(step);
    if (own.empty()) return;
    std::unordered_set<const Node*> at_hand = made_by(found_[step]);
    at_hand.insert(own.begin(), own.end());
    std::unordered_set<const Node*> seen;
    for (const Node* node : own) {
      for (const Value& input : node->inputs()) {
        const Node* lacks = input ? missing(input, at_hand, seen) : nullptr;
        if (lacks != nullptr && reads_memory_of(step, lacks))
          fail("P5 a step reads what its nodes read", name(step),
               fmt::format("%{} for %{}", lacks->name(), node->name()), found_text(found_[step]));
      }
    }
    const std::unordered_set<const Node*> wanted = wanted_by(own);
    for (const Write& write : found_[step]) {
      const auto makers = made_by({&write, 1});
      const bool explained = makers.empty() || std::ranges::any_of(makers, [&](const Node* node) {
                               return wanted.contains(node);
                             });
      if (!explained)
        fail("P5 a step reads what its nodes read", name(step), "operands of its nodes",
             name(write));
    }
  }

  std::string found_text(std::span<const Write> writes) const {
    std::string text;
    for (const Write& write : writes) text += (text.empty() ? "" : ", ") + name(write);
    return text.empty() ? "nothing" : text;
  }

  std::vector<Write> content(BufferId buffer) {
    std::vector<Write> writes;
    const Place place = place_of(buffer);
    memory_[place.memory].visit(place.begin, place.end, [&](std::int64_t, const auto& piece) {
      if (std::ranges::find(writes, piece.last) == writes.end()) writes.push_back(piece.last);
    });
    return writes;
  }

  void check_holds(BufferId buffer, const Value& value) {
    const std::vector<Write> writes = content(buffer);
    const bool whole = std::ranges::all_of(writes, [&](const Write& write) {
      return write.buffer != kNone && roots_[write.buffer] == roots_[buffer];
    });
    if (writes.empty()) return;  // no bytes
    std::unordered_set<const Node*> seen;
    if (whole && missing(value, made_by(writes), seen) == nullptr) return;
    fail("P9 results are there at the end", "%" + record_.buffers[buffer].value, value.name(),
         found_text(writes));
  }

  void check_results() {
    for (std::size_t k = 0; k < plan_.outputs.size(); ++k)
      check_holds(plan_.outputs[k], plan_.graph.outputs()[k]);
    for (BufferId b = 0; b < record_.buffers.size(); ++b) {
      if (record_.buffers[b].role != Role::Input || roots_[b] != b) continue;
      if (is_donated(record_.buffers[b].position)) continue;  // nobody looks
      const auto written = written_inputs().find(record_.buffers[b].position);
      if (written != written_inputs().end() && is_used(b)) check_holds(b, written->second);
    }
  }

  void check_lifetimes() const {
    if (plan_.lifetimes.empty()) return;
    for (StepId step = 0; step < record_.steps.size(); ++step) {
      for (const auto* list : {&record_.steps[step].reads, &record_.steps[step].writes}) {
        for (const BufferId buffer : *list) {
          const StepRange& range = plan_.lifetimes[roots_[buffer]];
          const PlanBuffer& owner = record_.buffers[roots_[buffer]];
          if (!is_arena(owner.role) && !owner.donated) continue;
          if (range.first != kNone && range.first <= step && step <= range.last) continue;
          fail("P10 bytes are there while they are used",
               fmt::format("%{} in {}", record_.buffers[buffer].value, name(step)),
               "a step in which it has its bytes",
               range.first == kNone ? "none" : fmt::format("{} to {}", range.first, range.last));
        }
      }
    }
  }

  /// The steps that touch the bytes of argument or output `position`.
  std::vector<StepId> touching(Role role, std::uint32_t position) const {
    std::vector<StepId> steps;
    for (StepId step = 0; step < record_.steps.size(); ++step) {
      const auto touches = [&](BufferId buffer) {
        const PlanBuffer& owner = record_.buffers[roots_[buffer]];
        return owner.role == role && owner.position == position;
      };
      if (std::ranges::any_of(record_.steps[step].reads, touches) ||
          std::ranges::any_of(record_.steps[step].writes, touches))
        steps.push_back(step);
    }
    return steps;
  }

  void check_shared(const SharedPlace& place) const {
    const char* rule = "P13 an output takes the place of an argument that is donated and done with";
    const std::string where = fmt::format("output {} in argument {}", place.output, place.argument);
    if (!is_donated(place.argument)) fail(rule, where, "a donated argument", "one that is not");
    for (const StepId old : touching(Role::Input, place.argument)) {
      for (const StepId step : touching(Role::Output, place.output)) {
        const bool follows = old == step ? may_replace(step, place) : plan_.before(old, step);
        if (!follows)
          fail(rule, where, fmt::format("{} to have ended", name(old)),
               old == step ? "the same step" : name(step));
      }
    }
  }

  /// Whether the kernel of `step` may write the output where it reads the argument.
  bool may_replace(StepId step, const SharedPlace& place) const {
    const PlanStep& planned = record_.steps[step];
    const bool writes_it = std::ranges::any_of(planned.writes, [&](BufferId buffer) {
      const PlanBuffer& owner = record_.buffers[roots_[buffer]];
      return owner.role == Role::Input && owner.position == place.argument;
    });
    if (writes_it) return false;
    return std::ranges::any_of(planned.may_reuse, [&](const auto& pair) {
      const PlanBuffer& from = record_.buffers[roots_[planned.reads[pair.first]]];
      const PlanBuffer& to = record_.buffers[roots_[planned.writes[pair.second]]];
      return from.role == Role::Input && from.position == place.argument &&
             to.role == Role::Output && to.position == place.output;
    });
  }

  const PlanUnderCheck& plan_;
  const ScheduleRecord& record_;
  PlanNodes nodes_;
  std::vector<BufferId> roots_;
  std::vector<ByteHistory> memory_;
  std::vector<std::vector<Write>> found_;   ///< by step: what it read
  std::map<BufferId, Write> written_last_;  ///< by root
  std::vector<bool> used_;
  std::map<std::uint32_t, Value> written_;
  bool none_written_ = false;
};

}  // namespace

void check_plan(const PlanUnderCheck& plan) { PlanChecker(plan).run(); }

void check_order(const Graph& graph, const Graph& planned, const ScheduleRecord& record,
                 const HappensBefore& before) {
  const PlanNodes nodes(planned, record);
  std::map<std::string_view, std::vector<StepId>> steps;
  for (StepId step = 0; step < record.steps.size(); ++step) {
    const PlanKernel& kernel = record.kernels[record.steps[step].kernel];
    for (const std::string& name : kernel.nodes)
      if (kernel.kind != PlanKernel::Kind::Copy) steps[name].push_back(step);
  }
  const auto is_same_effect = [&](const Node& node) {
    const Node* now = nodes.named(node.name());
    return now != nullptr && &now->op() == &node.op() && !is_pure(node) && !is_pure(*now);
  };
  const auto steps_of = [&](const Node& node) {
    const bool generated = node.name().empty() || std::isdigit(node.name().back());
    const bool is_view =
        node.op().lowering.view != nullptr;  // kernels of its readers bear its name
    const auto found = steps.find(node.name());
    const bool unknown = (generated && !is_same_effect(node)) || is_view || found == steps.end();
    return unknown ? std::vector<StepId>() : found->second;
  };
  for (const NodePtr& node : graph.nodes())
    for (const Value& named : node->after())
      for (const StepId from : steps_of(*named.node))
        for (const StepId to : steps_of(*node))
          if (from != to && !before(from, to)) fail_order(record, from, to, *named.node, *node);
}

}  // namespace heddle::ir
