#include "tests/support/one_op.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <limits>

#include "heddle/error.h"
#include "ir/evaluate.h"
#include "ir/op.h"

namespace heddle::testing {
namespace {

using ir::Literal;
using ir::Sizes;

bool is_absent(const Literal& operand) { return operand.data() == nullptr && operand.rank() == 0; }

ir::Dims dims_of(const Sizes& sizes) { return {sizes.begin(), sizes.end()}; }

ir::TensorMeta meta_of(const Literal& tensor) {
  ir::TensorMeta result = ir::TensorMeta::of(tensor.dtype(), dims_of(tensor.sizes()));
  result.strides = dims_of(tensor.strides());
  return result;
}

std::vector<Literal> present(const OneOp& call) {
  std::vector<Literal> result;
  for (const Literal& operand : call.operands) {
    if (!is_absent(operand)) result.push_back(operand);
  }
  return result;
}

void add_outputs(ir::GraphBuilder& builder, const ir::Node& node) {
  for (std::uint32_t k = 0; k < node.outputs().size(); ++k) builder.output(node.value(k));
}

const ir::Node* infer_node(ir::GraphBuilder& builder, std::string_view op,
                           const std::vector<ir::TensorMeta>& operands, ir::Attrs attrs) {
  std::vector<ir::Value> values;
  for (const ir::TensorMeta& operand : operands) values.push_back(builder.input(operand));
  return builder.call(op, values, std::move(attrs));
}

/// Decomposes each node once, where its op can and `forced` or it is not a fallback.
ir::Graph decompose_once(const ir::Graph& graph, bool forced) {
  return ir::rewrite(graph,
                     [&](ir::Rewriter& rewriter,
                         const ir::NodePtr& node) -> std::optional<std::vector<ir::Value>> {
                       const ir::Lowering& lowering = node->op().lowering;
                       if (lowering.decompose == nullptr || (lowering.decompose_last && !forced))
                         return std::nullopt;
                       ir::DecomposeContext ctx(rewriter.builder(), node,
                                                rewriter.map(node->inputs()));
                       std::vector<ir::Value> values = lowering.decompose(ctx);
                       if (values.empty()) return std::nullopt;
                       return values;
                     });
}

double largest_magnitude(const Literal& tensor) {
  double largest = 0;
  for (std::int64_t k = 0; k < tensor.count(); ++k) {
    const double value = std::fabs(tensor.at(k));
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  return largest;
}

bool close(double got, double want, double r, double largest) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got);
  if (std::isinf(want) || std::isinf(got)) return want == got;
  return std::fabs(got - want) <= r * std::fabs(want) + r * largest;
}

bool same_integer(const Literal& got, const Literal& want, std::int64_t k) {
  return got.at_int(k) == want.at_int(k);
}

std::uint32_t next_random(std::uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  return state >> 8;
}

}  // namespace

ir::Graph graph_of(const OneOp& call) {
  ir::GraphBuilder builder("main");
  std::vector<ir::Value> values;
  for (const Literal& operand : call.operands) {
    values.push_back(is_absent(operand) ? ir::Value{} : builder.input(meta_of(operand)));
  }
  add_outputs(builder, *builder.call(call.op, values, call.attrs));
  return builder.finish();
}

std::vector<Literal> evaluate(const OneOp& call) {
  const ir::Graph graph = graph_of(call);
  std::vector<Literal> results = ir::evaluate(graph, present(call));
  for (std::size_t k = 0; k < results.size(); ++k) {
    const ir::TensorMeta& inferred = graph.outputs()[k].meta();
    EXPECT_EQ(results[k].dtype(), inferred.dtype) << call.op;
    EXPECT_EQ(dims_of(results[k].sizes()), inferred.sizes) << call.op;
  }
  return results;
}

Literal value_of(const OneOp& call) { return evaluate(call)[0]; }

std::vector<std::string> ops_of(const ir::Graph& graph) {
  std::vector<std::string> ops;
  for (const ir::NodePtr& node : graph.nodes()) ops.emplace_back(node->op_name());
  return ops;
}

std::string type_of(std::string_view op, const std::vector<ir::TensorMeta>& operands,
                    ir::Attrs attrs) {
  ir::GraphBuilder builder("main");
  return infer_node(builder, op, operands, std::move(attrs))->output().to_string();
}

std::string error_of(std::string_view op, const std::vector<ir::TensorMeta>& operands,
                     ir::Attrs attrs) {
  return error_of([&] {
    ir::GraphBuilder builder("main");
    infer_node(builder, op, operands, attrs);
  });
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

ir::Graph decomposed(const OneOp& call) { return decomposed(graph_of(call)); }

ir::Graph decomposed(const ir::Graph& whole) {
  ir::Graph graph = decompose_once(whole, true);
  EXPECT_FALSE(graph.identical(whole)) << "nothing decomposed";
  for (int round = 0; round < 8; ++round) {
    ir::Graph next = decompose_once(graph, false);
    if (next.identical(graph)) return graph;
    graph = std::move(next);
  }
  ADD_FAILURE() << "never stops decomposing";
  return graph;
}

bool can_decompose(const OneOp& call) {
  const ir::Graph graph = graph_of(call);
  return !decompose_once(graph, true).identical(graph);
}

void expect_decomposition_agrees(const OneOp& call, double tolerance) {
  const std::vector<Literal> want = evaluate(call);
  const std::vector<Literal> got = ir::evaluate(decomposed(call), present(call));
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) expect_close(got[k], want[k], tolerance);
}

void expect_close(const Literal& got, const Literal& want, double r) {
  ASSERT_EQ(got.dtype(), want.dtype());
  ASSERT_EQ(got.sizes(), want.sizes());
  const double largest = largest_magnitude(want);
  for (std::int64_t k = 0; k < got.count(); ++k) {
    const bool agrees = is_floating(got.dtype()) || r != 0
                            ? close(got.at(k), want.at(k), r, largest)
                            : same_integer(got, want, k);
    ASSERT_TRUE(agrees) << "element " << k << ": got " << got.at(k) << ", want " << want.at(k);
  }
}

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return 1e-13;
    case DType::F32:
      return 1e-6;
    case DType::F16:
      return 1e-3;
    case DType::BF16:
      return 8e-3;
    default:
      return 0;
  }
}

Literal noise(DType dtype, const Sizes& sizes, std::uint32_t seed) {
  Literal result(dtype, sizes);
  std::uint32_t state = seed * 2654435761u + 12345u;
  for (std::int64_t k = 0; k < result.count(); ++k) {
    const std::uint32_t bits = next_random(state);
    if (is_floating(dtype)) {
      result.set(k, static_cast<double>(bits) / 4194304.0 - 2.0);
    } else if (dtype == DType::Bool) {
      result.set_int(k, bits >> 12 & 1);
    } else {
      result.set_int(k, static_cast<std::int64_t>(bits % 7) - (is_signed(dtype) ? 3 : 0));
    }
  }
  return result;
}

Literal any_bytes(DType dtype, const Sizes& sizes, std::uint32_t seed) {
  Literal result(dtype, sizes);
  std::uint32_t state = seed * 2654435761u + 12345u;
  for (std::int64_t k = 0; k < result.count(); ++k)
    result.set_int(k, static_cast<std::int64_t>(next_random(state) >> 12 & 255) -
                          (is_signed(dtype) ? 128 : 0));
  return result;
}

Literal spread_out(const Literal& tensor) {
  const Sizes& sizes = tensor.sizes();
  Sizes strides(sizes.size());
  std::int64_t step = 2;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    strides[d] = step;
    step *= std::max<std::int64_t>(sizes[d], 1);
  }
  const Literal room(tensor.dtype(), {step});
  Literal result = room.view(sizes, strides, 0);
  for (std::int64_t k = 0; k < tensor.count(); ++k) {
    if (is_floating(tensor.dtype())) {
      result.set(k, tensor.at(k));
    } else {
      result.set_int(k, tensor.at_int(k));
    }
  }
  return result;
}

Literal with_nan(const Literal& tensor, std::int64_t position) {
  Literal result = tensor.clone();
  result.set(position, std::numeric_limits<double>::quiet_NaN());
  return result;
}

Literal doubles(DType dtype, Sizes sizes, const std::vector<double>& values) {
  return Literal::of_doubles(dtype, std::move(sizes), values);
}

Literal ints(DType dtype, Sizes sizes, const std::vector<std::int64_t>& values) {
  return Literal::of_ints(dtype, std::move(sizes), values);
}

ir::TensorMeta meta(DType dtype, ir::Dims sizes) {
  return ir::TensorMeta::of(dtype, std::move(sizes));
}

}  // namespace heddle::testing
