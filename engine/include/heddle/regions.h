// Compile regions: what annotations choose, and what an engine says about them.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/annotate.h"

namespace heddle {

/// What an engine compiles.
enum class CompileScope : std::uint8_t {
  Whole,  ///< everything; nodes marked {"compile", …} are units of their own, under their own options
  Annotated,  ///< marked nodes only; the others run one by one, each as its own kernel
  Unmarked,   ///< everything as one unit: marks change nothing
};

/// A traced node as a predicate sees it.
struct NodeInfo {
  std::string_view name;      ///< "v3", or what the user called it
  std::string_view op;        ///< "matmul"
  std::string_view location;  ///< "block.cpp:12" or the model's node name
};

/// A compile unit.
struct RegionInfo {
  std::string name;                ///< "region_0": unique in the graph
  std::string id;                  ///< the user's; empty for the default pool
  AnnotationMap options;           ///< as the mark gave them
  std::vector<std::string> nodes;  ///< names of what it computes, after its passes
  bool fell_back = false;          ///< its compile failed: its nodes run one by one
};

/// Chooses nodes without annotating them: the value that a "compile" annotation would have, or nothing to go by
/// the node's own annotation.
using MarkNode = std::function<std::optional<AnnotationValue>(const NodeInfo&)>;

/// Options that a mark may give: {"compile", {{"id", "mlp"}, {"options", {{"fuse", false}}}}}.
///
///   fuse              bool, true    false: one kernel an op
///   library, winograd bool, true    library kernels, and of these Winograd convolutions, may be used
///   passes            text, ""      comma-separated names of the passes to run; empty: the usual ones
///   max_kernel_nodes  int, 256      ops fused into one kernel at most
///   on_error          text, throw   "op_by_op": when its compile fails its ops run one by one instead
///
/// An unknown key is an OptionError that names it, before anything is compiled.

}  // namespace heddle
