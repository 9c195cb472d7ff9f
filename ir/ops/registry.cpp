// The table of all ops: the families' definitions, sorted by name.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/closest.h"
#include "heddle/error.h"
#include "ir/custom_op.h"
#include "ir/op.h"
#include "ir/ops/families.h"

namespace heddle::ir {
namespace {

using Family = std::span<const OpDef> (*)();

constexpr Family kFamilies[] = {
    special_ops,   control_ops, region_ops,    unary_ops,  binary_ops, select_ops,  convert_ops,
    composite_ops, view_ops,    creation_ops,  pad_ops,    concat_ops, gather_ops,  reduce_ops,
    argreduce_ops, matmul_ops,  conv_ops,      pool_ops,   norm_ops,   scatter_ops, scan_ops,
    sort_ops,      resize_ops,  attention_ops, random_ops,
};

std::vector<const OpDef*> sorted_ops() {
  std::vector<const OpDef*> ops;
  for (const Family family : kFamilies)
    for (const OpDef& op : family()) ops.push_back(&op);
  std::sort(ops.begin(), ops.end(),
            [](const OpDef* a, const OpDef* b) { return a->name < b->name; });
  for (std::size_t k = 1; k < ops.size(); ++k)
    HD_CHECK(ops[k - 1]->name != ops[k]->name, std::string(ops[k]->name));
  return ops;
}

}  // namespace

std::span<const OpDef* const> all_ops() {
  static const std::vector<const OpDef*> ops = sorted_ops();
  return ops;
}

const OpDef* find_op(std::string_view name) {
  const auto ops = all_ops();
  const auto at =
      std::lower_bound(ops.begin(), ops.end(), name,
                       [](const OpDef* op, std::string_view n) { return op->name < n; });
  if (at != ops.end() && (*at)->name == name) return *at;
  const CustomOp* custom = find_custom_op(name);
  return custom == nullptr ? nullptr : &custom->def;
}

const OpDef& op_named(std::string_view name) {
  if (const OpDef* op = find_op(name)) return *op;
  std::vector<std::string_view> known;
  for (const OpDef* op : all_ops()) known.push_back(op->name);
  for (const std::string_view custom : custom_op_names()) known.push_back(custom);
  const std::string_view near = base::closest(name, known);
  throw UnsupportedError({.what = "unknown op '" + std::string(name) + "'",
                          .where = {},
                          .expected = near.empty() ? "" : "'" + std::string(near) + "'",
                          .got = {}});
}

AttrSpec in_place_attr() { return {"in_place", AttrKind::Ints, Attr(std::vector<std::int64_t>())}; }

bool overwrites(const Node& node, std::size_t operand) {
  if (!overwrites_any(node)) return false;
  const std::vector<std::int64_t>& operands = node.ints("in_place");
  return std::ranges::find(operands, static_cast<std::int64_t>(operand)) != operands.end();
}

bool overwrites_any(const Node& node) {
  const bool may = !node.op().in_place.empty() || node.op().custom != nullptr;
  return may && !node.ints("in_place").empty();
}

Alias alias_of(const Node& node, std::uint32_t output) {
  for (const InPlace& pair : node.op().in_place)
    if (pair.output == output && overwrites(node, pair.operand))
      return {Alias::Kind::Mutates, pair.operand};
  return node.op().alias ? node.op().alias(node, output) : Alias{};
}

}  // namespace heddle::ir
