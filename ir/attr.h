// Attribute values of nodes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "ir/literal.h"
#include "ir/meta.h"

namespace heddle::ir {

class Graph;

/// What an attribute may hold; the op's schema says which for each name.
enum class AttrKind : std::uint8_t {
  Bool,
  Int,
  Float,
  String,
  DType,
  Ints,
  Floats,
  SymInt,
  SymInts,
  Literal,
  Graph
};
std::string_view name_of(AttrKind kind);

/// A nested graph, named as in the text ("@then_0").
struct GraphRef {
  std::string name;
  std::shared_ptr<const Graph> graph;
};
using LiteralPtr = std::shared_ptr<const Literal>;

/// One attribute value. Kinds follow AttrKind, in its order.
using Attr = std::variant<bool, std::int64_t, double, std::string, DType, std::vector<std::int64_t>,
                          std::vector<double>, SymExpr, Dims, LiteralPtr, GraphRef>;
inline AttrKind kind_of(const Attr& attr) { return static_cast<AttrKind>(attr.index()); }

/// Attributes by name, sorted: equal maps print and hash alike.
using Attrs = std::map<std::string, Attr, std::less<>>;

/// Value equality; literals by checksum, graphs by structure.
bool equal(const Attr& a, const Attr& b);
bool equal(const Attrs& a, const Attrs& b);
std::uint64_t hash(const Attrs& attrs);

/// Annotations: the keys scopes put on nodes ("compile", "stage", "should_fallback"). Values are
/// Bool, Int, Float, String or a nested map ({"options": {…}}), never tensors.
struct Annotation;
using Annotations = std::map<std::string, Annotation, std::less<>>;
struct Annotation {
  std::variant<bool, std::int64_t, double, std::string, std::shared_ptr<const Annotations>> value;
  friend bool operator==(const Annotation& a, const Annotation& b);
};

}  // namespace heddle::ir
