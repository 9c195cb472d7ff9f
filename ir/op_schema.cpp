#include "ir/op_schema.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <fmt/format.h>

#include "heddle/error.h"

namespace heddle::ir {
namespace {

using Base = SchemaType::Base;

struct BaseName {
  std::string_view text;
  Base base;
};
constexpr BaseName kBases[] = {
    {"Tensor", Base::Tensor}, {"int", Base::Int},     {"float", Base::Float},  {"bool", Base::Bool},
    {"str", Base::String},    {"dtype", Base::DType}, {"SymInt", Base::SymInt}};

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

class SchemaParser {
 public:
  explicit SchemaParser(std::string_view text) : text_(text) {}

  OpSchema parse() {
    OpSchema schema;
    schema.name = word("a name such as lib::op");
    expect("::");
    schema.name += "::" + word("the op's name behind '::'");
    expect("(");
    if (!accept(")")) {
      do {
        schema.arguments.push_back(argument(schema));
      } while (accept(","));
      expect(")");
    }
    expect("->");
    schema.returns = returns();
    skip_space();
    if (at_ < text_.size()) fail(at_, "the end of the schema");
    for (const SchemaType& type : schema.returns) check_alias(schema, type);
    return schema;
  }

 private:
  [[noreturn]] void fail(std::size_t at, std::string expected) const {
    std::size_t end = at;
    while (end < text_.size() && is_word(text_[end])) ++end;
    if (end == at && at < text_.size()) ++end;
    throw ParseError(
        {.what = "op schema",
         .where = fmt::format("column {}", at + 1),
         .expected = std::move(expected),
         .got = at >= text_.size() ? "the end" : fmt::format("'{}'", text_.substr(at, end - at))});
  }

  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool accept(std::string_view token) {
    skip_space();
    if (!text_.substr(at_).starts_with(token)) return false;
    at_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail(at_, fmt::format("'{}'", token));
  }
  std::string word(const char* expected) {
    skip_space();
    const std::size_t start = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    const bool starts_well =
        at_ > start && std::isalpha(static_cast<unsigned char>(text_[start])) != 0;
    if (!starts_well) fail(start, expected);
    return std::string(text_.substr(start, at_ - start));
  }

  SchemaType type() {
    skip_space();
    const std::size_t start = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    const std::string_view name = text_.substr(start, at_ - start);
    const auto* found = std::find_if(std::begin(kBases), std::end(kBases),
                                     [&](const BaseName& base) { return base.text == name; });
    if (found == std::end(kBases))
      fail(start, "a type: Tensor, int, float, bool, str, dtype or SymInt");
    SchemaType type;
    type.base = found->base;
    if (accept("(")) {
      type.alias = word("the name of an alias set");
      type.written = accept("!");
      expect(")");
    }
    const std::size_t suffix = (skip_space(), at_);
    if (accept("[")) {
      expect("]");
      type.list = true;
    }
    const std::size_t mark = (skip_space(), at_);
    type.optional = accept("?");
    if (type.optional && (!type.is_tensor() || type.list))
      fail(mark, "no '?': only a single Tensor may be absent");
    if (type.list &&
        (type.base == Base::Bool || type.base == Base::String || type.base == Base::DType))
      fail(suffix, "a list of Tensor, int, float or SymInt");
    return type;
  }

  SchemaArgument argument(const OpSchema& schema) {
    SchemaArgument argument;
    argument.type = type();
    const std::size_t start = (skip_space(), at_);
    argument.name = word("the argument's name");
    for (const SchemaArgument& other : schema.arguments) {
      if (other.name == argument.name) fail(start, "a name that no other argument has");
      if (!argument.type.alias.empty() && other.type.alias == argument.type.alias)
        fail(start, fmt::format("one argument in alias set '{}'", argument.type.alias));
    }
    const std::size_t equals = (skip_space(), at_);
    if (accept("=")) {
      if (argument.type.is_tensor()) fail(equals, "no default: tensors have none");
      argument.default_value = default_of(argument.type);
    }
    return argument;
  }

  Attr default_of(const SchemaType& type) {
    if (!type.list) return scalar_default(type.base);
    expect("[");
    std::vector<std::int64_t> integers;
    std::vector<double> numbers;
    if (!accept("]")) {
      do {
        if (type.base == Base::Float)
          numbers.push_back(number());
        else
          integers.push_back(integer());
      } while (accept(","));
      expect("]");
    }
    if (type.base == Base::Float) return numbers;
    if (type.base == Base::SymInt) return Dims(integers.begin(), integers.end());
    return integers;
  }

  Attr scalar_default(Base base) {
    skip_space();
    const std::size_t start = at_;
    switch (base) {
      case Base::Int:
        return integer();
      case Base::SymInt:
        return SymExpr(integer());
      case Base::Float:
        return number();
      case Base::Bool:
        if (accept("true") || accept("True")) return true;
        if (accept("false") || accept("False")) return false;
        fail(start, "true or false");
      case Base::String:
        return string();
      default:
        break;
    }
    const std::string name = word("a dtype");
    for (const DType dtype : kAllDTypes)
      if (name_of(dtype) == name) return dtype;
    fail(start, "a dtype");
  }

  std::int64_t integer() {
    skip_space();
    std::int64_t value = 0;
    const char* first = text_.data() + at_;
    const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), value);
    if (error != std::errc()) fail(at_, "an integer");
    at_ += static_cast<std::size_t>(end - first);
    return value;
  }

  double number() {
    skip_space();
    double value = 0;
    const char* first = text_.data() + at_;
    const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), value);
    if (error != std::errc()) fail(at_, "a number");
    at_ += static_cast<std::size_t>(end - first);
    return value;
  }

  std::string string() {
    const char quote = at_ < text_.size() ? text_[at_] : ' ';
    if (quote != '"' && quote != '\'') fail(at_, "a quoted string");
    const std::size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail(at_, "a string with its closing quote");
    std::string value(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return value;
  }

  std::vector<SchemaType> returns() {
    std::vector<SchemaType> types;
    if (!accept("(")) {
      types.push_back(result());
      return types;
    }
    if (accept(")")) return types;
    do {
      types.push_back(result());
    } while (accept(","));
    expect(")");
    return types;
  }

  SchemaType result() {
    const std::size_t start = (skip_space(), at_);
    SchemaType found = type();
    if (!found.is_tensor() || found.optional) fail(start, "Tensor: ops return nothing else");
    result_at_.push_back(start);
    return found;
  }

  void check_alias(const OpSchema& schema, const SchemaType& type) {
    const std::size_t start = result_at_.at(static_cast<std::size_t>(&type - &schema.returns[0]));
    if (type.alias.empty()) return;
    for (const SchemaArgument& argument : schema.arguments) {
      if (argument.type.alias != type.alias) continue;
      if (argument.type.written != type.written)
        fail(start, fmt::format("({}{}) as in argument {}", type.alias,
                                argument.type.written ? "!" : "", argument.name));
      return;
    }
    fail(start, fmt::format("an argument in alias set '{}'", type.alias));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<std::size_t> result_at_;
};

}  // namespace

bool OpSchema::is_mutable() const {
  return std::any_of(arguments.begin(), arguments.end(),
                     [](const SchemaArgument& argument) { return argument.type.written; });
}

std::vector<std::size_t> OpSchema::tensor_arguments() const {
  std::vector<std::size_t> positions;
  for (std::size_t k = 0; k < arguments.size(); ++k)
    if (arguments[k].type.is_tensor()) positions.push_back(k);
  return positions;
}

bool OpSchema::returns_first() const {
  return returns.size() == 1 && returns[0].written && !returns[0].list && !arguments.empty() &&
         arguments[0].type.is_tensor() && !arguments[0].type.list && !arguments[0].type.optional &&
         arguments[0].type.alias == returns[0].alias;
}

std::string OpSchema::why_not_functional() const {
  if (!is_mutable()) return {};
  for (const SchemaArgument& argument : arguments)
    if (argument.type.written && !argument.type.is_tensor())
      return fmt::format("argument {} is written and is no tensor", argument.name);
  for (std::size_t k = 0; k < returns.size(); ++k) {
    if (returns[k].list) return fmt::format("result {} is a list of tensors", k);
    if (returns[k].written && !returns_first())
      return fmt::format("result {} shares bytes with a written argument", k);
    if (!returns[k].written && !returns[k].alias.empty())
      return fmt::format("result {} shares bytes with an argument", k);
  }
  return {};
}

AttrKind attr_kind(const SchemaType& type) {
  switch (type.base) {
    case Base::Int:
      return type.list ? AttrKind::Ints : AttrKind::Int;
    case Base::Float:
      return type.list ? AttrKind::Floats : AttrKind::Float;
    case Base::SymInt:
      return type.list ? AttrKind::SymInts : AttrKind::SymInt;
    case Base::Bool:
      return AttrKind::Bool;
    case Base::String:
      return AttrKind::String;
    default:
      return AttrKind::DType;
  }
}

OpSchema parse_op_schema(std::string_view text) { return SchemaParser(text).parse(); }

}  // namespace heddle::ir
