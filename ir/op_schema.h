// Schema strings of custom ops: "moe::route(Tensor x, Tensor(a!) counts, int k=2) -> (Tensor, Tensor)".
//
//   schema    name "(" [argument {"," argument}] ")" "->" returns
//   name      word "::" word
//   argument  type word ["=" default]
//   returns   "()" | type | "(" type {"," type} ")"
//   type      base ["(" word ["!"] ")"] ["[]"] ["?"]
//   base      Tensor | int | float | bool | str | dtype | SymInt
//
// (a) says that a value shares its bytes with the other (a); (a!) that the argument is written.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attr.h"

namespace heddle::ir {

struct SchemaType {
  enum class Base : std::uint8_t { Tensor, Int, Float, Bool, String, DType, SymInt };
  Base base = Base::Tensor;
  bool list = false;
  bool optional = false;
  std::string alias;     ///< "a"; empty: shares bytes with nothing
  bool written = false;  ///< "(a!)"

  bool is_tensor() const { return base == Base::Tensor; }
};

struct SchemaArgument {
  std::string name;
  SchemaType type;
  std::optional<Attr> default_value;  ///< of attributes
};

struct OpSchema {
  std::string name;
  std::vector<SchemaArgument> arguments;
  std::vector<SchemaType> returns;

  bool is_mutable() const;
  /// Arguments that are tensors, as indices into `arguments`.
  std::vector<std::size_t> tensor_arguments() const;
  /// Whether the only result is the first argument, which is written: "add_(Tensor(a!) x) -> Tensor(a!)".
  bool returns_first() const;
  /// Why calls of a mutable op cannot be put into value semantics; empty: they can.
  ///   written arguments are tensors, optional tensors or lists of tensors
  ///   results are tensors that share bytes with no written argument (but see returns_first)
  std::string why_not_functional() const;
};

/// The attribute kind of an argument that is no tensor.
AttrKind attr_kind(const SchemaType& type);

/// @throws ParseError naming the column, what was expected and what stands there.
OpSchema parse_op_schema(std::string_view text);

}  // namespace heddle::ir
