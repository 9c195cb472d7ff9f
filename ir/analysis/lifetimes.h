// From when to when the bytes of each storage are needed, in a given order of nodes.
#pragma once

#include <cstdint>
#include <map>
#include <span>

#include "ir/graph.h"

namespace heddle::ir {

/// Inclusive places in an order. Weak edges do not extend a lifetime; a view extends its storage's.
struct Lifetime {
  std::uint32_t first = 0;  ///< the place of the node that makes the storage
  std::uint32_t last =
      0;  ///< of the last node that reads or writes it; kForever if the caller sees it
  friend bool operator==(const Lifetime&, const Lifetime&) = default;
};
inline constexpr std::uint32_t kForever = 0xffffffffu;

/// Lifetimes of all storages. `order` holds positions in graph.nodes(), each once; empty: as they are.
/// Inputs that are not donated, and what outputs and write-backs read, live forever.
std::map<StorageId, Lifetime> lifetimes_of(const Graph& graph,
                                           std::span<const std::uint32_t> order = {});

}  // namespace heddle::ir
