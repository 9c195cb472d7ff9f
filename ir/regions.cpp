#include "ir/regions.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>

#include "base/check.h"
#include "base/closest.h"
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
      fail_mark(where, "annotation compile: unknown key " + key,
                std::string(base::closest(key, kMarkKeys)));
    }
  }
  return mark;
}

using Unit = std::uint32_t;

/// Units of the quotient graph: a unit is a region in the making or one unmarked node.
class Partitioner {
 public:
  Partitioner(const Graph& graph, const std::vector<std::optional<RegionMark>>& marks)
      : graph_(graph), marks_(marks), unit_of_(graph.nodes().size()) {
    const auto nodes = graph.nodes();
    for (std::uint32_t k = 0; k < nodes.size(); ++k) position_.emplace(nodes[k].get(), k);
    for (std::uint32_t k = 0; k < nodes.size(); ++k) {
      unit_of_[k] = k;
      members_.push_back({k});
      before_.push_back(predecessors(*nodes[k]));
    }
  }

  std::vector<Region> run() {
    for (std::uint32_t k = 0; k < marks_.size(); ++k)
      if (marks_[k]) join_one(k);
    while (merge_pairs()) {
    }
    std::vector<Region> regions;
    for (const Unit unit : units_) {
      Region region{*marks_[unit], {}};
      std::sort(members_[unit].begin(), members_[unit].end());
      for (const std::uint32_t k : members_[unit]) region.nodes.push_back(graph_.nodes()[k].get());
      regions.push_back(std::move(region));
    }
    return regions;
  }

 private:
  std::vector<std::uint32_t> predecessors(const Node& node) const {
    std::vector<std::uint32_t> result;
    const auto add = [&](const Value& value) {
      if (value) result.push_back(position_.at(value.node));
    };
    for (const Value& input : node.inputs()) add(input);
    for (const Value& first : node.after()) add(first);
    return result;
  }

  bool same_pool(Unit a, Unit b) const { return *marks_[a] == *marks_[b]; }

  /// The latest unit of the pool that takes node k, else one of its own.
  void join_one(std::uint32_t k) {
    for (std::size_t u = units_.size(); u-- > 0;) {
      if (!same_pool(units_[u], k) || returns(units_[u], k) || returns(k, units_[u])) continue;
      merge(units_[u], k);
      return;
    }
    units_.push_back(k);
  }

  /// A merge that was refused may be possible once a third unit has joined one of the two.
  bool merge_pairs() {
    for (std::size_t a = 0; a < units_.size(); ++a) {
      for (std::size_t b = a + 1; b < units_.size(); ++b) {
        if (!same_pool(units_[a], units_[b]) || returns(units_[a], units_[b]) ||
            returns(units_[b], units_[a]))
          continue;
        merge(units_[a], units_[b]);
        units_.erase(units_.begin() + static_cast<std::ptrdiff_t>(b));
        return true;
      }
    }
    return false;
  }

  void merge(Unit into, Unit from) {
    for (const std::uint32_t k : members_[from]) unit_of_[k] = into;
    members_[into].insert(members_[into].end(), members_[from].begin(), members_[from].end());
    members_[from].clear();
  }

  /// Whether a path leads from `from` to `to` through a third unit.
  bool returns(Unit from, Unit to) const {
    std::vector<bool> seen(members_.size(), false);
    std::vector<Unit> open;
    const auto look_behind = [&](Unit unit) {
      for (const std::uint32_t k : members_[unit]) {
        for (const std::uint32_t p : before_[k]) {
          const Unit other = unit_of_[p];
          if (seen[other] || other == to || (unit == to && other == from)) continue;
          seen[other] = true;
          open.push_back(other);
        }
      }
    };
    look_behind(to);
    while (!open.empty()) {
      const Unit unit = open.back();
      open.pop_back();
      if (unit == from) return true;
      look_behind(unit);
    }
    return false;
  }

  const Graph& graph_;
  const std::vector<std::optional<RegionMark>>& marks_;
  std::unordered_map<const Node*, std::uint32_t> position_;
  std::vector<Unit> unit_of_;                        ///< by node: named by its first member
  std::vector<std::vector<std::uint32_t>> members_;  ///< by unit
  std::vector<std::vector<std::uint32_t>> before_;   ///< by node
  std::vector<Unit> units_;                          ///< regions so far
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
