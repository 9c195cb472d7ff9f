#include "ir/regions.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <span>
#include <unordered_map>

#include "base/check.h"
#include "base/closest.h"
#include "base/order_list.h"
#include "heddle/error.h"

namespace heddle::ir {

namespace {

constexpr std::string_view kMarkKeys[] = {"id", "options"};

[[noreturn]] void fail_mark(const base::Location& where, std::string what, std::string expected) {
  throw OptionError({.what = std::move(what),
                     .where = where.to_string(),
                     .expected = std::move(expected),
                     .got = {}});
}

RegionMark mark_of_map(const Annotations& map, const base::Location& where) {
  RegionMark mark;
  for (const auto& [key, value] : map) {
    if (key == "id") {
      const auto* text = std::get_if<std::string>(&value.value);
      if (text == nullptr) fail_mark(where, "annotation compile: id", "a text");
      mark.id = *text;
    } else if (key == "options") {
      const auto* options = std::get_if<std::shared_ptr<const Annotations>>(&value.value);
      if (options == nullptr) fail_mark(where, "annotation compile: options", "a map");
      mark.options = **options;
    } else {
      const std::string_view near = base::closest(key, kMarkKeys);
      fail_mark(where, "annotation compile: unknown key " + key,
                near.empty() ? "id or options" : std::string(near));
    }
  }
  return mark;
}

using Unit = std::uint32_t;
constexpr Unit kNoUnit = 0xffffffffu;

/// Units of the quotient graph: a unit is a region in the making or one unmarked node.
///
/// Nodes come in graph order and join the last unit of their pool, if no path leads from that unit through
/// a third one to the node; else they begin a unit. A topological order of the units so far bounds the
/// search for such a path: only what is after the unit can be on it, and what is found to come before the
/// node, but not after the unit, is moved before the unit when the node joins.
///
/// Of many pools that all have nodes before and after a long path, each would look along all of it. What all searches
/// together look at is bounded by n log n; beyond that nodes begin units of their own, which is always right.
///
/// The units of one pool form a chain in which paths through third units lead from each to the next. Paths
/// compose, and those units, of other pools or of none, never join this one: so a node that the last unit
/// refuses is refused by all, and no two units of the result could be merged, unless the bound was met.
class Partitioner {
 public:
  Partitioner(const Graph& graph, const std::vector<std::optional<RegionMark>>& marks)
      : graph_(graph),
        marks_(marks),
        unit_of_(graph.nodes().size()),
        next_(graph.nodes().size(), kNoUnit),
        last_(graph.nodes().size()),
        seen_(graph.nodes().size(), kNoUnit),
        order_(graph.nodes().size()) {
    const auto nodes = graph.nodes();
    looks_left_ = kLooks * nodes.size() * std::bit_width(nodes.size());
    for (std::uint32_t k = 0; k < nodes.size(); ++k) position_.emplace(nodes[k].get(), k);
    for (const NodePtr& node : nodes) {
      before_start_.push_back(before_.size());
      add_predecessors(*node);
    }
    before_start_.push_back(before_.size());
  }

  std::vector<Region> run() {
    std::vector<Unit> units;
    for (std::uint32_t k = 0; k < marks_.size(); ++k) {
      Unit* last = marks_[k] ? &last_unit(*marks_[k]) : nullptr;
      if (last != nullptr && *last != kNoUnit && find_before(*last, k)) {
        join(*last, k);
        continue;
      }
      begin(k);
      if (last == nullptr) continue;
      *last = k;
      units.push_back(k);
    }
    std::vector<Region> regions;
    for (const Unit unit : units) {
      Region region{*marks_[unit], {}};
      for (std::uint32_t k = unit; k != kNoUnit; k = next_[k])
        region.nodes.push_back(graph_.nodes()[k].get());
      regions.push_back(std::move(region));
    }
    return regions;
  }

 private:
  void add_predecessors(const Node& node) {
    const auto add = [&](const Value& value) {
      if (value) before_.push_back(position_.at(value.node));
    };
    for (const Value& input : node.inputs()) add(input);
    for (const Value& first : node.after()) add(first);
  }
  std::span<const std::uint32_t> before(std::uint32_t k) const {
    return std::span(before_).subspan(before_start_[k], before_start_[k + 1] - before_start_[k]);
  }

  /// The last unit of a pool; kNoUnit while it has none.
  Unit& last_unit(const RegionMark& mark) {
    auto& same_id = pools_[mark.id];
    for (auto& [options, unit] : same_id)
      if (options == mark.options) return unit;
    return same_id.emplace_back(mark.options, kNoUnit).second;
  }

  void begin(std::uint32_t k) {
    unit_of_[k] = k;
    last_[k] = k;
    order_.append(k);
  }

  void join(Unit unit, std::uint32_t k) {
    unit_of_[k] = unit;
    next_[last_[unit]] = k;
    last_[unit] = k;
    std::ranges::sort(found_, [&](Unit a, Unit b) { return order_.before(a, b); });
    for (const Unit earlier : found_) order_.move(earlier, unit);
  }

  /// Collects in found_ what is after `unit` and leads to node k. False if a path from `unit` is among it, or may be.
  bool find_before(Unit unit, std::uint32_t k) {
    found_.clear();
    const auto look_behind = [&](std::uint32_t member) {
      if (looks_left_ == 0) return false;
      --looks_left_;
      for (const std::uint32_t p : before(member)) {
        const Unit other = unit_of_[p];
        if (other == unit) {
          if (member != k) return false;
        } else if (seen_[other] != k && order_.before(unit, other)) {
          seen_[other] = k;
          found_.push_back(other);
        }
      }
      return true;
    };
    if (!look_behind(k)) return false;
    for (std::size_t at = 0; at < found_.size(); ++at)
      for (std::uint32_t member = found_[at]; member != kNoUnit; member = next_[member])
        if (!look_behind(member)) return false;
    return true;
  }

  static constexpr std::size_t kLooks = 16;

  const Graph& graph_;
  const std::vector<std::optional<RegionMark>>& marks_;
  std::unordered_map<const Node*, std::uint32_t> position_;
  std::vector<Unit> unit_of_;              ///< by node: named by its first member
  std::vector<std::uint32_t> next_;        ///< by node: the next member of its unit, in graph order
  std::vector<std::uint32_t> last_;        ///< by unit: its last member
  std::vector<std::uint32_t> before_;      ///< predecessors of all nodes, one node after another
  std::vector<std::size_t> before_start_;  ///< by node, and the end
  std::map<std::string, std::vector<std::pair<Annotations, Unit>>> pools_;
  std::vector<std::uint32_t> seen_;  ///< by unit: the last node whose search found it
  std::vector<Unit> found_;
  base::OrderList order_;       ///< of units
  std::size_t looks_left_ = 0;  ///< nodes whose predecessors may still be looked at
};

}  // namespace

std::optional<RegionMark> region_mark(const Annotations& annotations, const base::Location& where) {
  const auto found = annotations.find("compile");
  if (found == annotations.end()) return std::nullopt;
  const auto& value = found->second.value;
  if (const bool* flag = std::get_if<bool>(&value))
    return *flag ? std::optional<RegionMark>(RegionMark{}) : std::nullopt;
  if (const auto* id = std::get_if<std::string>(&value)) return RegionMark{*id, {}};
  if (const auto* map = std::get_if<std::shared_ptr<const Annotations>>(&value))
    return mark_of_map(**map, where);
  fail_mark(where, "annotation compile", "true, false, a region's id, or a map of id and options");
}

bool may_be_marked(const Node& node) {
  const std::string_view op = node.op_name();
  return op != "input" && op != "param" && op != "const";
}

std::vector<Region> partition_regions(const Graph& graph,
                                      const std::vector<std::optional<RegionMark>>& marks) {
  HD_CHECK(marks.size() == graph.nodes().size());
  return Partitioner(graph, marks).run();
}

}  // namespace heddle::ir
