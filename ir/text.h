// The text form of graphs (.hir): parses and prints to the same text.
#pragma once

#include <iosfwd>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace heddle::ir {

struct PrintOptions {
  bool types = false;      ///< print every type, not only those that inference cannot find
  bool locations = false;  ///< end each line with its source location as a comment
};

/// A file: one or more graphs, the first is the entry; nested ones follow.
std::string print(const Graph& graph, const PrintOptions& options = {});
/// @throws ParseError naming line, column, expected and got; ShapeError etc. from inference.
/// `literals`: bytes of constants that the text names by checksum (side file), may be null.
using LiteralTable = std::map<std::string, LiteralPtr, std::less<>>;
Graph parse(std::string_view text, const LiteralTable* literals = nullptr);
/// Large constants of `graph` by the names print() gives them.
LiteralTable named_literals(const Graph& graph);
/// Side file next to `x.hir`: "x.hir.bin". Written and read whole, checked by checksum.
void save(const Graph& graph, const std::string& path);
Graph load(const std::string& path);

}  // namespace heddle::ir
