// The parts of IR text that hold no values of a graph: types, literals, attributes, annotations.
#pragma once

#include "ir/attr.h"
#include "ir/text.h"
#include "ir/text_cursor.h"

namespace heddle::ir {

/// "f32[s0, 128]{1, s0}@cuda:0".
TensorMeta parse_type(TextCursor& cursor);
/// A size such as "2*s0+1", up to one of `ends`.
SymExpr parse_size(TextCursor& cursor, std::string_view ends);
/// "s0 == s1".
base::Predicate parse_predicate(TextCursor& cursor);
/// "1.0: f32", "[1, 2]: i64", "@w0 #…: f32[128, 128]" (bytes from `table`).
LiteralPtr parse_literal(TextCursor& cursor, const LiteralTable* table);
/// An attribute of `kind`; a graph is left as its name.
Attr parse_attr(TextCursor& cursor, AttrKind kind, const LiteralTable* table);
/// "{compile = "tail", stage = 2}".
Annotations parse_annotations(TextCursor& cursor);

}  // namespace heddle::ir
