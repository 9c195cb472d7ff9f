// Graphs whose outputs lie where inputs do: those that inputs are appended to (EngineOptions::append), and those that are donated inputs
// of which a part is new.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/guards.h"
#include "ir/graph.h"

namespace heddle::engine {

/// An input that the graph appends to.
struct Append {
  std::size_t named = 0;  ///< which of the inputs that the options name
  std::size_t axis = 0;
  ir::SymExpr length;                ///< along the axis, with what is appended
  std::vector<std::size_t> outputs;  ///< of the callable, that are all of it
};

/// A donated input that the graph overwrites a part of.
struct Update {
  std::size_t input = 0;
  std::vector<std::size_t> outputs;  ///< of the callable, that it is in the end
};

/// What a graph makes of the callable's inputs and outputs.
struct OutputsInPlace {
  std::vector<std::size_t>
      inputs;  ///< to append to: those that the options name, in ascending order
  std::vector<Append> appends;
  std::vector<Update> updates;
  std::size_t outputs = 0;  ///< of the callable

  bool empty() const { return appends.empty() && updates.empty(); }
};

/// Lets the graph write to inputs what outputs are else fresh memory for.
///
/// It takes the whole memory of the arguments that are named, and appends to it where an output is a
/// concatenation that begins with one.
///
///   graph(%past: f32[4, s0, 64], %x: f32[4, 1, 64])
///   %y = concat(%past, %x) {axis = 1}
///   return %y, …
///     ==>
///   graph(%past: f32[4, s1, 64], %x: f32[4, 1, 64], %past.sizes: bool[4, s0, 64, 0])
///   %z = slice_scatter(%past, %x) {axis = 1, start = s0}
///   %y = slice(%z) [:, 0:s0 + 1, :]
///   write_back %past = %z
///   return …
///
/// The sizes of what is in that memory come as those of one more argument each, without elements, behind the other arguments.
/// Nothing but who calls the graph sees to it that the memory has the room: s0 + 1 <= s1 is no guard. An argument that no output begins
/// with, whose length only the run tells, or that is written to is read only.
///
/// An argument that is donated is written to where an output is what overwrites a part of it:
///
///   graph(%cache: donated f32[4, 512, 64], %x: f32[4, 1, 64], %i: i64[4, 1, 64])
///   %y = scatter_elements(%cache, %i, %x) {axis = 1}
///   return %y, …
///     ==>
///   graph(%cache: f32[4, 512, 64], …)
///   write_back %cache = %y
///   return …
///
/// @param hints  of sizes; gets those of the new symbols
/// @param guards  of `graph`; become those of the result
/// @param places  `inputs` of it; gets the rest
ir::Graph put_outputs_in_place(const ir::Graph& graph, base::SymbolValues& hints, Guards& guards,
                               OutputsInPlace& places);

/// Sizes of input `k` of the callable, as the guards of the graph have them.
ir::Dims callable_sizes(std::span<const InputGuard> guards, const OutputsInPlace& places,
                        std::size_t k);

}  // namespace heddle::engine
