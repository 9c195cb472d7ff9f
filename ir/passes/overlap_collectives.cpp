#include "ir/passes/overlap_collectives.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "ir/analysis/dependencies.h"
#include "ir/analysis/lifetimes.h"
#include "ir/analysis/regions.h"
#include "ir/custom_op.h"
#include "ir/op.h"

namespace heddle::ir {

namespace {

using Position = std::uint32_t;

/// Nodes that computing may hide collectives behind.
class Computing {
 public:
  bool is_much(const Node& node) {
    if (node.op().custom != nullptr) return false;
    if (!node.op().lowering.library.empty()) return true;
    const Contents inside = inside_of(node);
    return inside.computes && !inside.begins;
  }
  /// Whether graphs nested in `node` have collectives, which keep their place among those around them.
  bool begins_inside(const Node& node) { return inside_of(node).begins; }

 private:
  struct Contents {
    bool computes = false;  ///< much
    bool begins = false;    ///< collectives
  };

  Contents inside_of(const Node& node) {
    Contents inside;
    for (const GraphRef* nested : regions_of(node)) {
      const Contents more = contents_of(*nested->graph);
      inside.computes = inside.computes || more.computes;
      inside.begins = inside.begins || more.begins;
    }
    return inside;
  }

  const Contents& contents_of(const Graph& graph) {
    const auto [at, fresh] = known_.try_emplace(&graph);
    if (!fresh) return at->second;
    Contents contents;
    for (const NodePtr& node : graph.nodes()) {
      contents.computes = contents.computes || is_much(*node);
      contents.begins = contents.begins || is_collective(*node) || begins_inside(*node);
    }
    return at->second = contents;
  }

  std::map<const Graph*, Contents> known_;
};

/// A collective while it is looked at: between which positions it is under way.
struct Flight {
  Collective collective;
  Position start = 0;
  Position wait = 0;
  std::int64_t bytes = 0;   ///< of the start's results
  std::int64_t result = 0;  ///< bytes of what the wait gives
  const Node* hidden_by = nullptr;
};

class OverlapFinder {
 public:
  OverlapFinder(const Graph& graph, const OverlapLimits& limits)
      : graph_(graph), limits_(limits), dependencies_(dependencies_of(graph)) {
    for (Position k = 0; k < graph.nodes().size(); ++k) {
      const Node* node = graph.nodes()[k].get();
      positions_.emplace(node, k);
      computing_before_.push_back(static_cast<Position>(computing_.size()));
      if (much_.is_much(*node)) computing_.push_back(k);
    }
    computing_before_.push_back(static_cast<Position>(computing_.size()));
    measure_memory();
    for (const Collective& collective : collectives_of(graph)) {
      Flight flight{collective, positions_.at(collective.start), positions_.at(collective.wait)};
      for (const TensorMeta& meta : collective.start->outputs()) flight.bytes += bytes_of(meta);
      for (const TensorMeta& meta : collective.wait->outputs()) flight.result += bytes_of(meta);
      add(in_flight_, flight.start, flight.wait, flight.bytes);
      flight_of_[collective.start] = flight_of_[collective.wait] = flights_.size();
      flights_.push_back(flight);
    }
  }

  Overlap run() {
    for (const Position compute : computing_) {
      const auto fits = [&](const Flight& flight) {
        return flight.hidden_by == nullptr && may_hide(flight, compute);
      };
      const auto flight = std::ranges::find_if(flights_, fits);
      if (flight != flights_.end()) hide(*flight, compute);
    }
    Overlap overlap;
    for (const Flight& flight : flights_) {
      if (flight.hidden_by == nullptr)
        overlap.exposed.push_back(flight.collective);
      else
        overlap.hidden.push_back({flight.collective, flight.hidden_by});
    }
    return overlap;
  }

 private:
  static void add(std::vector<std::int64_t>& bytes, Position begin, Position end,
                  std::int64_t more) {
    for (Position k = begin; k < end; ++k) bytes[k] += more;
  }

  std::int64_t bytes_of(const TensorMeta& meta) const {
    base::SymbolValues sizes = limits_.sizes;
    const SymExpr bytes = meta.bytes();
    std::vector<base::Symbol> symbols;
    bytes.collect_symbols(symbols);
    for (const base::Symbol& symbol : symbols) sizes.try_emplace(symbol, 1);
    return bytes.evaluate(sizes);
  }

  void measure_memory() {
    const auto count = static_cast<Position>(graph_.nodes().size());
    live_.assign(count, 0);
    in_flight_.assign(count, 0);
    const auto lifetimes = lifetimes_of(graph_);
    std::vector<std::int64_t> change(count + 1, 0);
    std::unordered_set<StorageId> seen;
    for (const NodePtr& node : graph_.nodes()) {
      if (node->is_argument()) continue;
      for (const TensorMeta& meta : node->outputs()) {
        const auto life = lifetimes.find(meta.storage);
        if (life == lifetimes.end() || !seen.insert(meta.storage).second) continue;
        change[life->second.first] += bytes_of(meta);
        if (life->second.last < count) change[life->second.last + 1] -= bytes_of(meta);
      }
    }
    std::int64_t sum = 0;
    for (Position k = 0; k < count; ++k) peak_ = std::max(peak_, live_[k] = sum += change[k]);
  }

  std::int64_t most_live() const {
    const double share = static_cast<double>(peak_) * limits_.max_memory_increase_share;
    return peak_ + std::min(limits_.max_memory_increase, static_cast<std::int64_t>(share));
  }

  /// How many computing nodes lie in [begin, end).
  std::size_t computing_in(Position begin, Position end) const {
    return begin < end ? computing_before_[end] - computing_before_[begin] : 0;
  }

  bool may_hide(const Flight& flight, Position compute) {
    if (computing_in(compute, flight.start) > limits_.max_compute_distance) return false;
    if (computing_in(flight.wait, compute + 1) > limits_.max_compute_distance) return false;
    if (dependencies_.reaches(compute, flight.start) || dependencies_.reaches(flight.wait, compute))
      return false;
    return path_is_clear(flight, compute) && memory_allows(flight, compute);
  }

  /// Whether what moves up with the start is none of what may not.
  bool path_is_clear(const Flight& flight, Position compute) {
    if (flight.start < compute) return true;
    std::unordered_set<Position> seen;
    std::vector<Position> open{flight.start};
    while (!open.empty()) {
      const Position at = open.back();
      open.pop_back();
      for (const Dependency& edge : dependencies_.into(at)) {
        if (edge.from <= compute || !seen.insert(edge.from).second) continue;
        if (is_in_the_way(*graph_.nodes()[edge.from], compute)) return false;
        open.push_back(edge.from);
      }
    }
    return true;
  }

  bool is_in_the_way(const Node& node, Position compute) {
    if (much_.is_much(node) || much_.begins_inside(node)) return true;
    const auto found = flight_of_.find(&node);
    if (found == flight_of_.end()) return is_collective(node);
    const Flight& other = flights_[found->second];
    return other.hidden_by == nullptr || other.hidden_by == graph_.nodes()[compute].get();
  }

  /// A start that moves up takes its results' bytes earlier; a wait that moves down keeps them longer, and takes
  /// those of its own later.
  bool memory_allows(const Flight& flight, Position compute) const {
    const auto fits = [&](Position begin, Position end, std::int64_t more) {
      for (Position k = begin; k < end; ++k) {
        if (live_[k] + more > most_live()) return false;
        if (in_flight_[k] + flight.bytes > limits_.max_bytes_in_flight) return false;
      }
      return true;
    };
    if (in_flight_[flight.start] > limits_.max_bytes_in_flight) return false;
    return fits(compute, flight.start, flight.bytes) &&
           fits(flight.wait, compute + 1, flight.bytes - flight.result);
  }

  void hide(Flight& flight, Position compute) {
    flight.hidden_by = graph_.nodes()[compute].get();
    add(in_flight_, compute, flight.start, flight.bytes);
    add(in_flight_, flight.wait, compute + 1, flight.bytes);
    add(live_, compute, flight.start, flight.bytes);
    add(live_, flight.wait, compute + 1, flight.bytes - flight.result);
    dependencies_.add(flight.start, compute, true);
    dependencies_.add(compute, flight.wait, true);
  }

  const Graph& graph_;
  const OverlapLimits& limits_;
  Computing much_;
  Dependencies dependencies_;  ///< those of the graph, and what hiding adds
  std::unordered_map<const Node*, Position> positions_;
  std::vector<Position> computing_;
  std::vector<Position> computing_before_;  ///< by position: how many lie before it
  std::vector<std::int64_t> live_, in_flight_;
  std::int64_t peak_ = 0;
  std::vector<Flight> flights_;
  std::unordered_map<const Node*, std::size_t> flight_of_;
};

}  // namespace

Overlap find_overlap(const Graph& graph, const OverlapLimits& limits) {
  return OverlapFinder(graph, limits).run();
}

ControlDeps overlap_deps(const Overlap& overlap) {
  ControlDeps deps;
  for (const Overlap::Hidden& hidden : overlap.hidden) {
    deps[hidden.compute->name()].insert(hidden.collective.start->name());
    deps[hidden.collective.wait->name()].insert(hidden.compute->name());
  }
  return deps;
}

ControlDeps without_collective_pairs(const Graph& graph, const ControlDeps& deps) {
  std::unordered_set<std::string_view> collective;
  for (const NodePtr& node : graph.nodes())
    if (is_collective(*node)) collective.insert(node->names().begin(), node->names().end());
  ControlDeps result;
  for (const auto& [node, firsts] : deps)
    for (const std::string& first : firsts)
      if (!collective.contains(node) || !collective.contains(first)) result[node].insert(first);
  return result;
}

namespace {

Graph overlap_in(const Graph& graph) {
  const ControlDeps deps = overlap_deps(find_overlap(graph));
  return control_deps(graph, without_collective_pairs(graph, deps));
}

}  // namespace

Graph overlap_collectives(const Graph& graph) {
  return overlap_in(change_regions(graph, overlap_in));
}

}  // namespace heddle::ir
