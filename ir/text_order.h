// Text of graphs whose lines were written in another order than that in which they can be read.
#pragma once

#include <string>
#include <string_view>

namespace heddle::ir {

/// `text` with the calls of each graph in an order in which what they read and wait for comes first. Calls stand on lines of
/// their own, as print() puts them; those that are in order keep their order. What names nothing of its graph is left to
/// the parser.
///
///   %b = neg(%x) after(%a)             %a = exp(%x)
///   %a = exp(%x)                ==>    %b = neg(%x) after(%a)
///
/// @throws CycleError naming the values.
/// Cost: n log n in characters.
std::string in_order(std::string_view text);

}  // namespace heddle::ir
