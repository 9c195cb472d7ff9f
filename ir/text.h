// The text form of graphs (.hir): parses and prints to the same text.
//
//   file    = graph {graph}                 the first is the entry, the others are named by attributes
//   graph   = "graph" @name "(" [input {"," input}] ")" "{" {line} "return" [result {"," result}] "}"
//   input   = %name ":" ["param" | "donated"] type [label]     donated: of the entry only; not written back
//   result  = %name [label]
//   line    = "assume" size ("==" | "!=" | "<" | "<=") size [reason]
//           | [%name {"," %name} "="] call ["@{" key "=" value … "}"] ["after(" %name … ")"] [":" type …]
//           | "write_back" %input "=" %value
//   call    = op "(" [operand {"," operand}] ")" ["{" name "=" value … "}"] | "const" literal
//   operand = %name | literal | "none"       a scalar constant that nobody named, with the annotations
//                                            of the node; an absent operand
//   literal = number ":" dtype | "[" numbers "]:" dtype [sizes] | "@name #checksum:" dtype sizes
//   type    = dtype "[" sizes "]" ["{" strides "}"] ["@" device]
//
// Lists of a literal are flat, in row-major order; sizes follow unless it has one dimension. Literals of
// more than 16 elements print by name. Attributes print in schema order, those with their default value
// only when called "axis". A result type prints where inference would number an unbacked size anew.
// Labels, reasons and string attributes are quoted. Comments begin with "//".
#pragma once

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
/// `literals`: bytes of constants that the text names by checksum, and values of parameters by name
/// (side file), may be null. `file`: a name for messages.
using LiteralTable = std::map<std::string, LiteralPtr, std::less<>>;
Graph parse(std::string_view text, const LiteralTable* literals = nullptr,
            std::string_view file = {});
/// Large constants of `graph` by the names print() gives them, and the values of its parameters by theirs.
LiteralTable named_literals(const Graph& graph);
/// Side file next to `x.hir`: "x.hir.bin". Written and read whole, checked by checksum.
void save(const Graph& graph, const std::string& path);
Graph load(const std::string& path);

}  // namespace heddle::ir
