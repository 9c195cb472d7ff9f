// Nodes with nested graphs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

#include "jit/lower/kernel.h"
#include "jit/program.h"

namespace heddle::jit {

/// Names of the attributes that hold the nested graphs of a node, in the order of NestedCall::regions.
std::vector<std::string_view> region_names(ir::RegionKind kind);

/// The body of a loop as it is lowered.
struct LoweredBody {
  std::shared_ptr<const Program> program;
  std::vector<bool> updated;                   ///< as BodyInPlace
  std::vector<NestedCall::Appended> appended;  ///< as NestedCall
};

/// What the lowering of a graph and that of the graphs nested in it share.
struct SharedLowering {
  CheckTable checks;
  /// A graph that many calls name is lowered once.
  std::map<std::shared_ptr<const ir::Graph>, std::shared_ptr<const Program>> programs{};
  /// Bodies of loops, by the condition, of a scan none, and how many values the loop carries.
  std::map<std::tuple<std::shared_ptr<const ir::Graph>, const ir::Graph*, std::uint32_t>,
           LoweredBody>
      bodies{};
};

/// lower() as a part of that of the graph around it.
Program lower_graph(const ir::Graph& graph, const LowerOptions& options, SharedLowering& shared);

/// Whether `symbol` stands for the bytes of a workspace, which are known when a plan is bound.
bool is_workspace(const Symbol& symbol);

/// The nested graphs of `node`, lowered if they have not been before. `step`: its number, unique in its program.
/// @throws UnsupportedError when a size of a result is known only at run time.
std::shared_ptr<const NestedCall> lower_regions(const Node& node, const LoweringState& state,
                                                std::uint32_t step);

}  // namespace heddle::jit
