#include "ir/attr.h"

#include <bit>

#include "base/hash.h"
#include "ir/graph.h"

namespace heddle::ir {
namespace {

using base::combine;

std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }

bool same_doubles(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t k = 0; k < a.size(); ++k)
    if (bits(a[k]) != bits(b[k])) return false;
  return true;
}

bool same_literal(const LiteralPtr& a, const LiteralPtr& b) {
  return a == b || (a && b && a->checksum() == b->checksum());
}

bool same_graph(const GraphRef& a, const GraphRef& b) {
  return a.graph == b.graph ||
         (a.graph && b.graph && a.graph->structural_hash() == b.graph->structural_hash());
}

std::uint64_t fold(const base::Hash128& hash) { return combine(hash.low, hash.high); }

struct Hasher {
  std::uint64_t operator()(bool value) const { return value; }
  std::uint64_t operator()(std::int64_t value) const { return static_cast<std::uint64_t>(value); }
  std::uint64_t operator()(double value) const { return bits(value); }
  std::uint64_t operator()(const std::string& value) const { return base::hash64(value); }
  std::uint64_t operator()(DType value) const { return static_cast<std::uint64_t>(value); }
  std::uint64_t operator()(const std::vector<std::int64_t>& values) const { return each(values); }
  std::uint64_t operator()(const std::vector<double>& values) const { return each(values); }
  std::uint64_t operator()(const SymExpr& value) const { return value.hash(); }
  std::uint64_t operator()(const Dims& values) const { return each(values); }
  std::uint64_t operator()(const LiteralPtr& value) const {
    return value ? fold(value->checksum()) : 0;
  }
  std::uint64_t operator()(const GraphRef& value) const {
    return value.graph ? fold(value.graph->structural_hash()) : 0;
  }

  template <typename T>
  std::uint64_t each(const std::vector<T>& values) const {
    std::uint64_t result = values.size();
    for (const T& value : values) result = combine(result, (*this)(value));
    return result;
  }
};

}  // namespace

std::string_view name_of(AttrKind kind) {
  constexpr std::string_view kNames[] = {"bool",   "int",    "float",   "string",  "dtype", "ints",
                                         "floats", "symint", "symints", "literal", "graph"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool equal(const Attr& a, const Attr& b) {
  if (a.index() != b.index()) return false;
  switch (kind_of(a)) {
    case AttrKind::Float:
      return bits(std::get<double>(a)) == bits(std::get<double>(b));
    case AttrKind::Floats:
      return same_doubles(std::get<std::vector<double>>(a), std::get<std::vector<double>>(b));
    case AttrKind::Literal:
      return same_literal(std::get<LiteralPtr>(a), std::get<LiteralPtr>(b));
    case AttrKind::Graph:
      return same_graph(std::get<GraphRef>(a), std::get<GraphRef>(b));
    case AttrKind::Bool:
      return std::get<bool>(a) == std::get<bool>(b);
    case AttrKind::Int:
      return std::get<std::int64_t>(a) == std::get<std::int64_t>(b);
    case AttrKind::String:
      return std::get<std::string>(a) == std::get<std::string>(b);
    case AttrKind::DType:
      return std::get<DType>(a) == std::get<DType>(b);
    case AttrKind::Ints:
      return std::get<std::vector<std::int64_t>>(a) == std::get<std::vector<std::int64_t>>(b);
    case AttrKind::SymInt:
      return std::get<SymExpr>(a) == std::get<SymExpr>(b);
    case AttrKind::SymInts:
      return std::get<Dims>(a) == std::get<Dims>(b);
  }
  return false;
}

bool equal(const Attrs& a, const Attrs& b) {
  if (a.size() != b.size()) return false;
  for (auto x = a.begin(), y = b.begin(); x != a.end(); ++x, ++y)
    if (x->first != y->first || !equal(x->second, y->second)) return false;
  return true;
}

std::uint64_t hash(const Attrs& attrs) {
  std::uint64_t result = attrs.size();
  for (const auto& [name, attr] : attrs) {
    result = combine(result, base::hash64(name));
    result = combine(result, combine(attr.index(), std::visit(Hasher{}, attr)));
  }
  return result;
}

bool operator==(const Annotation& a, const Annotation& b) {
  if (a.value.index() != b.value.index()) return false;
  const auto* x = std::get_if<std::shared_ptr<const Annotations>>(&a.value);
  if (!x) return a.value == b.value;
  const auto& y = std::get<std::shared_ptr<const Annotations>>(b.value);
  return *x == y || (*x && y && **x == *y);
}

}  // namespace heddle::ir
