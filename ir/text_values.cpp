#include "ir/text_values.h"

#include <algorithm>

#include "heddle/error.h"
#include "ir/text_number.h"

namespace heddle::ir {
namespace {

/// Numbers a literal of unknown dtype is made of, as written.
using Words = std::vector<std::string_view>;

/// Takes "[item, item]" with `item(cursor)` for each.
template <typename F>
void parse_list(TextCursor& cursor, std::string_view open, std::string_view close, F&& item) {
  cursor.expect(open);
  if (cursor.accept(close)) return;
  do {
    item();
  } while (cursor.accept(","));
  cursor.expect(close);
}

Dims parse_dims(TextCursor& cursor, std::string_view open, std::string_view close) {
  Dims dims;
  const std::string ends = "," + std::string(close);
  parse_list(cursor, open, close, [&] { dims.push_back(parse_size(cursor, ends)); });
  return dims;
}

DType parse_dtype(TextCursor& cursor) {
  const std::size_t start = (cursor.peek(), cursor.position());
  const std::string_view name = cursor.word("a dtype");
  for (const DType dtype : kAllDTypes)
    if (name_of(dtype) == name) return dtype;
  cursor.fail_at(start, "syntax", "a dtype", "'" + std::string(name) + "'");
}

DeviceTag parse_device(TextCursor& cursor) {
  if (cursor.accept("cpu")) return {};
  cursor.expect("cuda");
  cursor.expect(":");
  const auto index = int_value(cursor.word("a device number"));
  if (!index) cursor.fail("a device number");
  return {DeviceTag::Kind::Cuda, static_cast<std::int32_t>(*index)};
}

std::int64_t parse_int(TextCursor& cursor) {
  const std::size_t start = (cursor.peek(), cursor.position());
  const std::string_view text = cursor.number("an integer");
  const auto value = int_value(text);
  if (!value) cursor.fail_at(start, "syntax", "an integer", "'" + std::string(text) + "'");
  return *value;
}

double parse_float(TextCursor& cursor) { return *float_value(cursor.number("a number")); }

bool parse_bool(TextCursor& cursor) {
  if (cursor.accept("true")) return true;
  if (!cursor.accept("false")) cursor.fail("true or false");
  return false;
}

std::string_view parse_element(TextCursor& cursor) {
  const std::string_view next = cursor.peek_word();
  if (next == "true" || next == "false") return cursor.word("an element");
  return cursor.number("a number, true or false");
}

/// Whether `dtype`, of integers but u64, holds `value`.
bool holds(DType dtype, std::int64_t value) {
  const int bits = static_cast<int>(size_of(dtype) * 8);
  if (bits == 64) return true;
  const std::int64_t end = std::int64_t{1} << (is_signed(dtype) ? bits - 1 : bits);
  return value < end && value >= (is_signed(dtype) ? -end : 0);
}

/// @param text  a part of the cursor's
void set_element(TextCursor& cursor, Literal& literal, std::int64_t k, std::string_view text) {
  const auto fail = [&](std::string expected) {
    cursor.fail_at(static_cast<std::size_t>(text.data() - cursor.text().data()), "syntax",
                   std::move(expected), std::string(text));
  };
  const std::string dtype(name_of(literal.dtype()));
  const bool is_flag = text == "true" || text == "false";
  if (is_flag != (literal.dtype() == boolean)) fail("an element of " + dtype);
  if (is_flag) return literal.set_int(k, text == "true");
  if (is_floating(literal.dtype())) return literal.set(k, *float_value(text));
  if (const auto value = unsigned_value(text); value && literal.dtype() == u64)
    return literal.set_int(k, static_cast<std::int64_t>(*value));
  const auto value = int_value(text);
  if (!value) fail("an integer");
  if (literal.dtype() == u64 || !holds(literal.dtype(), *value))
    fail("an integer that " + dtype + " holds");
  literal.set_int(k, *value);
}

Sizes parse_sizes(TextCursor& cursor) {
  Sizes sizes;
  parse_list(cursor, "[", "]", [&] {
    sizes.push_back(parse_int(cursor));
    if (sizes.back() < 0) cursor.fail("a size of at least 0", std::to_string(sizes.back()));
  });
  return sizes;
}

LiteralPtr parse_named_literal(TextCursor& cursor, const LiteralTable* table) {
  const std::size_t start = cursor.position();
  const std::string name(cursor.name('@', "the name of a constant"));
  cursor.expect("#");
  const std::string checksum(cursor.word("a checksum"));
  cursor.expect(":");
  parse_dtype(cursor);
  parse_sizes(cursor);
  const auto found = table ? table->find(name) : LiteralTable::const_iterator{};
  if (!table || found == table->end())
    cursor.fail_at(start, "constant @" + name, "its bytes in the side file", "none");
  const std::string got = found->second->checksum().hex();
  if (got != checksum) cursor.fail_at(start, "checksum of constant @" + name, checksum, got);
  return found->second;
}

LiteralPtr parse_inline_literal(TextCursor& cursor) {
  Words words;
  const bool is_list = cursor.peek() == '[';
  if (is_list)
    parse_list(cursor, "[", "]", [&] { words.push_back(parse_element(cursor)); });
  else
    words.push_back(parse_element(cursor));
  cursor.expect(":");
  const DType dtype = parse_dtype(cursor);
  const auto count = static_cast<std::int64_t>(words.size());
  Sizes sizes = is_list ? Sizes{count} : Sizes{};
  if (is_list && cursor.peek() == '[') sizes = parse_sizes(cursor);
  if (element_count(sizes) != count)
    cursor.fail(std::to_string(element_count(sizes)) + " elements", std::to_string(count));
  auto literal = std::make_shared<Literal>(dtype, std::move(sizes));
  for (std::int64_t k = 0; k < count; ++k)
    set_element(cursor, *literal, k, words[static_cast<std::size_t>(k)]);
  return literal;
}

Annotation parse_annotation(TextCursor& cursor) {
  if (cursor.peek() == '{') return {std::make_shared<const Annotations>(parse_annotations(cursor))};
  if (cursor.peek() == '"') return {cursor.string()};
  const std::string_view next = cursor.peek_word();
  if (next == "true" || next == "false") return {parse_bool(cursor)};
  const std::string_view number = cursor.number("an annotation: a bool, number, string or {…}");
  if (const auto integer = int_value(number)) return {*integer};
  return {*float_value(number)};
}

template <typename T, typename F>
std::vector<T> parse_vector(TextCursor& cursor, F&& item) {
  std::vector<T> values;
  parse_list(cursor, "[", "]", [&] { values.push_back(item(cursor)); });
  return values;
}

}  // namespace

SymExpr parse_size(TextCursor& cursor, std::string_view ends) {
  const std::size_t start = (cursor.peek(), cursor.position());
  const std::string text(cursor.until(ends));
  try {
    return base::parse_symexpr(text);
  } catch (const ParseError& error) {
    cursor.fail_at(start, "size '" + text + "'", error.parts().expected, error.parts().got);
  }
}

TensorMeta parse_type(TextCursor& cursor) {
  const DType dtype = parse_dtype(cursor);
  TensorMeta meta = TensorMeta::of(dtype, parse_dims(cursor, "[", "]"));
  // Strides follow without space: "f32[4] {" begins a block.
  const std::size_t next = cursor.position();
  if (next < cursor.text().size() && cursor.text()[next] == '{') {
    meta.strides = parse_dims(cursor, "{", "}");
    if (meta.strides.size() != meta.sizes.size())
      cursor.fail_at(next, "strides", std::to_string(meta.sizes.size()) + " of them",
                     std::to_string(meta.strides.size()));
  }
  if (cursor.position() < cursor.text().size() && cursor.text()[cursor.position()] == '@' &&
      cursor.accept("@"))
    meta.device = parse_device(cursor);
  return meta;
}

base::Predicate parse_predicate(TextCursor& cursor) {
  using Op = base::Predicate::Op;
  constexpr std::string_view kEnds = "=!<>\"\n/";
  base::Predicate predicate;
  predicate.left = parse_size(cursor, "=!<>");
  if (cursor.accept("=="))
    predicate.op = Op::Eq;
  else if (cursor.accept("!="))
    predicate.op = Op::Ne;
  else if (cursor.accept("<="))
    predicate.op = Op::Le;
  else if (cursor.accept("<"))
    predicate.op = Op::Lt;
  else
    cursor.fail("==, !=, < or <=");
  predicate.right = parse_size(cursor, kEnds);
  return predicate;
}

LiteralPtr parse_literal(TextCursor& cursor, const LiteralTable* table) {
  return cursor.peek() == '@' ? parse_named_literal(cursor, table) : parse_inline_literal(cursor);
}

Attr parse_attr(TextCursor& cursor, AttrKind kind, const LiteralTable* table) {
  switch (kind) {
    case AttrKind::Bool:
      return parse_bool(cursor);
    case AttrKind::Int:
      return parse_int(cursor);
    case AttrKind::Float:
      return parse_float(cursor);
    case AttrKind::String:
      return cursor.string();
    case AttrKind::DType:
      return parse_dtype(cursor);
    case AttrKind::Ints:
      return parse_vector<std::int64_t>(cursor, parse_int);
    case AttrKind::Floats:
      return parse_vector<double>(cursor, parse_float);
    case AttrKind::SymInt:
      return parse_size(cursor, ",}");
    case AttrKind::SymInts:
      return parse_dims(cursor, "[", "]");
    case AttrKind::Literal:
      return parse_literal(cursor, table);
    case AttrKind::Graph:
      break;
  }
  return GraphRef{"@" + std::string(cursor.name('@', "the name of a graph")), nullptr};
}

Annotations parse_annotations(TextCursor& cursor) {
  Annotations annotations;
  parse_list(cursor, "{", "}", [&] {
    const std::string key(cursor.word("the key of an annotation"));
    cursor.expect("=");
    if (!annotations.emplace(key, parse_annotation(cursor)).second)
      cursor.fail("each key once", "'" + key + "' again");
  });
  return annotations;
}

}  // namespace heddle::ir
