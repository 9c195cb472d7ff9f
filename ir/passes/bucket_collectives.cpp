#include "ir/passes/bucket_collectives.h"

#include <algorithm>
#include <fmt/format.h>
#include <unordered_map>
#include <unordered_set>

#include "heddle/error.h"
#include "ir/analysis/dependencies.h"
#include "ir/analysis/regions.h"
#include "ir/analysis/users.h"
#include "ir/custom_op.h"
#include "ir/environment.h"
#include "ir/op.h"
#include "ir/passes/form_regions.h"
#include "ir/passes/visible.h"

namespace heddle::ir {

namespace {

struct Bucket {
  std::string name;
  Annotations unit;  ///< what says which compile unit the starts are of
  std::vector<Collective> members;
  std::size_t started = 0;  ///< starts that the walk has come to
  Value joined;             ///< all operands, one after another
  Value start, wait;
};

std::string bucket_of(const Node& start) {
  const auto found = start.annotations().find("bucket");
  if (found == start.annotations().end()) return {};
  return std::visit(
      [](const auto& value) -> std::string {
        if constexpr (requires { value->begin(); })
          return {};
        else
          return fmt::format("{}", value);
      },
      found->second.value);
}

/// What a start's annotations say of its compile unit: nodes of different ones are never made one.
Annotations unit_of(const Node& start) {
  Annotations unit;
  for (const std::string_view key : {std::string_view("compile"), kRegionAnnotation})
    if (const auto found = start.annotations().find(key); found != start.annotations().end())
      unit.insert(*found);
  return unit;
}

[[noreturn]] void fail_member(const Bucket& bucket, const Node& node, std::string expected,
                              std::string got) {
  throw ArgumentError({.what = fmt::format("bucket-collectives: bucket {}", bucket.name),
                       .where = "%" + node.name(),
                       .expected = std::move(expected),
                       .got = std::move(got)});
}

bool same_type(const TensorMeta& a, const TensorMeta& b) {
  return a.dtype == b.dtype && a.sizes == b.sizes;
}

bool same_call(const Node& a, const Node& b) {
  return &a.op() == &b.op() && equal(a.attrs(), b.attrs());
}

void check_call(const Bucket& bucket, const Node& node, const Node& like) {
  if (node.op().custom->schema.is_mutable() || node.outputs().size() != 1 ||
      !same_type(node.output(), node.input(0).meta()))
    fail_member(bucket, node, "one result of the type of its operand, and nothing written",
                std::string(node.op_name()));
  if (!same_call(node, like))
    fail_member(bucket, node, fmt::format("the op and attributes of %{}", like.name()),
                std::string(node.op_name()));
}

void check_member(const Bucket& bucket, const Collective& member, const Users& users) {
  const auto& [start, wait] = member;
  check_call(bucket, *start, *bucket.members[0].start);
  check_call(bucket, *wait, *bucket.members[0].wait);
  if (start->input(0).meta().dtype != bucket.members[0].start->input(0).meta().dtype)
    fail_member(bucket, *start, "elements of one dtype", start->input(0).meta().to_string());
  if (start->inputs().size() != 1 || wait->inputs().size() > 2 || wait->input(0).node != start ||
      (wait->inputs().size() == 2 && wait->input(1) != start->input(0)))
    fail_member(bucket, *wait, "a start of one operand, and a wait for it", "other operands");
  const bool read = std::ranges::any_of(
      users.of(start->value()), [&](const Use& use) { return !use.order && use.node != wait; });
  if (read || users.escapes(start->value()))
    fail_member(bucket, *start, "a start that only its wait reads", "another reader");
}

std::vector<Bucket> buckets_of(const Graph& graph) {
  std::vector<Bucket> buckets;
  for (const Collective& member : collectives_of(graph)) {
    const std::string name = bucket_of(*member.start);
    if (name.empty()) continue;
    const Annotations unit = unit_of(*member.start);
    auto bucket = std::ranges::find_if(
        buckets, [&](const Bucket& known) { return known.name == name && known.unit == unit; });
    if (bucket == buckets.end()) {
      buckets.emplace_back();
      buckets.back().name = name;
      buckets.back().unit = unit;
      bucket = buckets.end() - 1;
    }
    bucket->members.push_back(member);
  }
  std::erase_if(buckets, [](const Bucket& bucket) { return bucket.members.size() < 2; });
  const Users users = users_of(graph);
  for (const Bucket& bucket : buckets)
    for (const Collective& member : bucket.members) check_member(bucket, member, users);
  return buckets;
}

class Joiner {
 public:
  Joiner(const Graph& graph, std::vector<Bucket> buckets)
      : graph_(graph),
        buckets_(std::move(buckets)),
        visible_(visible_storages(graph)),
        builder_(graph.name(), environment_of(graph)) {
    builder_.adopt(graph);
    for (Bucket& bucket : buckets_) {
      for (const Collective& member : bucket.members) {
        starts_[member.start] = &bucket;
        waits_[member.wait] = &bucket;
      }
    }
  }

  Bucketed run() {
    for (const std::uint32_t position : order()) visit(graph_.nodes()[position]);
    for (std::size_t k = 0; k < graph_.outputs().size(); ++k)
      builder_.output(map(graph_.outputs()[k]), graph_.output_label(k));
    for (const Graph::WriteBack& write : graph_.write_backs())
      builder_.write_back(map(write.target), map(write.source));
    Bucketed result{builder_.finish(), {}};
    for (const Bucket& bucket : buckets_) {
      for (const Collective& member : bucket.members) {
        result.moved[member.start->name()] = bucket.start.node->name();
        result.moved[member.wait->name()] = bucket.wait.node->name();
      }
    }
    return result;
  }

 private:
  /// All starts of a bucket, and what its waits wait for, before all its waits; and all starts before whatever
  /// waits for one of them.
  std::vector<std::uint32_t> order() const {
    std::unordered_map<const Node*, std::uint32_t> position;
    for (const NodePtr& node : graph_.nodes())
      position.emplace(node.get(), static_cast<std::uint32_t>(position.size()));
    Dependencies dependencies = dependencies_of(graph_);
    for (const Bucket& bucket : buckets_) {
      for (const Collective& a : bucket.members) {
        for (const Collective& b : bucket.members) {
          dependencies.add(position.at(a.start), position.at(b.wait), true);
          for (const Value& first : a.wait->after())
            if (!belongs(bucket, first.node))
              dependencies.add(position.at(first.node), position.at(b.wait), true);
        }
      }
    }
    for (const NodePtr& node : graph_.nodes())
      for (const Value& first : node->after())
        if (const auto start = starts_.find(first.node);
            start != starts_.end() && !belongs(*start->second, node.get()))
          for (const Collective& member : start->second->members)
            dependencies.add(position.at(member.start), position.at(node.get()), true);
    return topological_order(graph_, dependencies);
  }

  bool belongs(const Bucket& bucket, const Node* node) const {
    return std::ranges::any_of(bucket.members, [&](const Collective& member) {
      return member.start == node || member.wait == node;
    });
  }

  Value map(Value value) const { return value ? values_.at(value) : value; }

  void add_order(std::vector<Value>& order, const Value& first) const {
    const auto moved = moved_.find(first.node);
    const Value now = moved == moved_.end() ? map(first) : moved->second;
    if (std::ranges::find(order, now) == order.end()) order.push_back(now);
  }

  void visit(const NodePtr& node) {
    if (const auto start = starts_.find(node.get()); start != starts_.end()) {
      Bucket& bucket = *start->second;
      if (++bucket.started == bucket.members.size()) make_start(bucket);
      return;
    }
    if (const auto wait = waits_.find(node.get()); wait != waits_.end()) {
      if (!wait->second->wait) make_wait(*wait->second);
      return;
    }
    std::vector<Value> inputs, after;
    for (const Value& input : node->inputs()) inputs.push_back(map(input));
    for (const Value& first : node->after()) add_order(after, first);
    const Node* made = builder_.with_inputs(node, inputs, after);
    for (std::uint32_t k = 0; k < node->outputs().size(); ++k)
      values_[node->value(k)] = made->value(k);
  }

  /// What nodes made for `node` look like; order is that of all of `nodes` but the bucket's own.
  void enter(const Bucket& bucket, const Node& like, std::string name,
             const std::vector<const Node*>& nodes) {
    builder_.context = {like.annotations(), {}, like.location(), std::move(name), {}};
    for (const Node* node : nodes)
      for (const Value& first : node->after())
        if (!belongs(bucket, first.node)) add_order(builder_.context.after, first);
  }

  void make_start(Bucket& bucket) {
    std::vector<Value> parts;
    std::vector<const Node*> starts;
    for (const Collective& member : bucket.members) {
      const Value operand = map(member.start->input(0));
      builder_.context = {member.start->annotations(), {}, member.start->location(), {}, {}};
      const bool flat = operand.meta().rank() == 1;
      const Dims sizes{operand.meta().count()};
      parts.push_back(flat ? operand : builder_.emit("reshape", {operand}, {{"sizes", sizes}}));
      starts.push_back(member.start);
    }
    const Node& first = *bucket.members[0].start;
    builder_.context = {first.annotations(), {}, first.location(), {}, {}};
    bucket.joined = builder_.call("concat", parts, {{"axis", std::int64_t{0}}})->value();
    enter(bucket, first, bucket.name + "_start", starts);
    bucket.start = builder_.call(first.op(), {&bucket.joined, 1}, first.attrs())->value();
    builder_.context = {};
    for (const Node* start : starts) moved_[start] = bucket.start;
  }

  void make_wait(Bucket& bucket) {
    std::vector<const Node*> waits;
    for (const Collective& member : bucket.members) waits.push_back(member.wait);
    const Node& first = *waits[0];
    std::vector<Value> operands{bucket.start};
    if (first.inputs().size() == 2) operands.push_back(bucket.joined);
    enter(bucket, first, bucket.name + "_wait", waits);
    bucket.wait = builder_.call(first.op(), operands, first.attrs())->value();
    SymExpr begin = 0;
    for (const Node* wait : waits) {
      moved_[wait] = bucket.wait;
      builder_.context = {wait->annotations(), {}, wait->location(), wait->name(), {}};
      const SymExpr end = begin + wait->output().count();
      const Value part = builder_.emit(
          "slice", {bucket.wait},
          {{"start", Dims{begin}}, {"limit", Dims{end}}, {"stride", Dims{SymExpr(1)}}});
      Value& value = values_[wait->value()];
      value = wait->output().rank() == 1
                  ? part
                  : builder_.emit("reshape", {part}, {{"sizes", wait->output().sizes}});
      // The caller's results share no bytes.
      if (visible_.contains(wait->output().storage)) value = builder_.emit("clone", {value});
      begin = end;
    }
    builder_.context = {};
  }

  const Graph& graph_;
  std::vector<Bucket> buckets_;
  const std::set<StorageId> visible_;
  GraphBuilder builder_;
  std::unordered_map<const Node*, Bucket*> starts_, waits_;
  std::map<Value, Value> values_;
  std::unordered_map<const Node*, Value> moved_;  ///< what order means when it names a member
};

}  // namespace

Bucketed join_buckets(const Graph& graph) {
  std::vector<Bucket> buckets = buckets_of(graph);
  if (buckets.empty()) return {graph, {}};
  return Joiner(graph, std::move(buckets)).run();
}

Graph bucket_collectives(const Graph& graph) {
  const auto join = [](const Graph& each) { return join_buckets(each).graph; };
  return join(change_regions(graph, join));
}

ControlDeps move_deps(const ControlDeps& deps, const std::map<std::string, std::string>& moved) {
  const auto now = [&](const std::string& name) {
    const auto found = moved.find(name);
    return found == moved.end() ? name : found->second;
  };
  ControlDeps result;
  for (const auto& [node, firsts] : deps)
    for (const std::string& first : firsts)
      if (now(first) != now(node)) result[now(node)].insert(now(first));
  return result;
}

}  // namespace heddle::ir
