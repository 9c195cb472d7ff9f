// Puts marked nodes into compile units.
#pragma once

#include <functional>

#include "ir/graph.h"
#include "ir/regions.h"

namespace heddle::ir {

/// Replaces the nodes of each region (see partition_regions) by a call of it.
///
///   %s = sin(%x)                                 graph @main(%x: f32[s0], %y: f32[s0]) {
///   %m = mul(%s, %y) @{compile = "r"}              %s = sin(%x)
///   %a = add(%m, 1.0: f32) @{compile = "r"}        %region_0 = region(%s, %y) {body = @region_0} @{…}
///   %o = sin(%a)                           ==>     %o = sin(%region_0)
///   return %o                                      return %o
///                                                }
///                                                graph @region_0(%s: f32[s0], %y: f32[s0]) { … }
///
/// Operands are the outside values that the region reads, in order of first use, each once; constants are
/// copied in. Results are the inside values that are read outside, in graph order. Nested graphs of unmarked
/// nodes are searched too, each once however often it is called; those of a marked node belong to its region.
///
/// Needs:   any verified functional graph.
/// Leaves:  no marked node outside a region; the same graph when nothing is marked. The region node carries
///          its mark. An order edge across a region's border becomes one of the whole region.
/// Order:   first; inline-regions is its inverse.
/// Cost:    nodes and edges, times a logarithm, once for each pool at worst.
Graph form_regions(const Graph& graph);

/// The same with marks of the caller's choice: by node, overriding annotations.
using MarkFunction = std::function<std::optional<RegionMark>(const Node&)>;
Graph form_regions(const Graph& graph, const MarkFunction& mark);

/// Name of the annotation that inline_regions puts on the nodes of a region: its name, a text.
inline constexpr std::string_view kRegionAnnotation = "region";

/// Puts the body of each region back in place of its call. Its nodes carry the region's name as an
/// annotation, so that lowering knows which belong together.
///
/// Order:   after each region went through its own passes.
/// Cost:    linear in nodes.
Graph inline_regions(const Graph& graph);

/// Whether a node asks for a kernel of its own, or a library's: `should_fallback = true`.
bool wants_fallback(const Node& node);

}  // namespace heddle::ir
