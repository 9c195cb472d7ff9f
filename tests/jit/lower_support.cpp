#include "tests/jit/lower_support.h"

#include <cmath>
#include <gtest/gtest.h>
#include <random>

#include "ir/evaluate.h"
#include "jit/program_archive.h"

namespace heddle::test {

using ir::Literal;

ir::Dims dims(std::initializer_list<const char*> texts) {
  ir::Dims sizes;
  for (const char* text : texts) sizes.push_back(base::parse_symexpr(text));
  return sizes;
}

ir::TensorMeta tensor(DType dtype, std::initializer_list<const char*> sizes) {
  return ir::TensorMeta::of(dtype, dims(sizes));
}

Literal random_literal(DType dtype, ir::Sizes sizes, std::uint32_t seed, std::int64_t low,
                       std::int64_t high) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> real(-2, 2);
  std::uniform_int_distribution<std::int64_t> integer(dtype == DType::U8 ? 0 : low, high);
  Literal literal(dtype, std::move(sizes));
  for (std::int64_t k = 0; k < literal.count(); ++k) {
    if (is_floating(dtype)) {
      literal.set(k, real(random));
    } else {
      literal.set_int(k, dtype == DType::Bool ? integer(random) > 0 : integer(random));
    }
  }
  return literal;
}

std::vector<Literal> random_arguments(const ir::Graph& graph,
                                      const std::vector<std::int64_t>& sizes, std::uint32_t seed) {
  std::vector<Literal> arguments;
  for (const ir::Value& input : graph.inputs()) {
    if (input.node->op_name() == "param") continue;
    ir::Sizes concrete;
    for (const auto& size : input.meta().sizes) concrete.push_back(size.evaluate_sizes(sizes));
    arguments.push_back(random_literal(input.meta().dtype, concrete, seed++));
  }
  return arguments;
}

std::string nests_of(const jit::Program& program) {
  std::string text;
  for (const auto& kernel : program.kernels)
    if (kernel.nest) text += jit::print(*kernel.nest) + "\n";
  return text;
}

std::set<const jit::Nest*> distinct_nests(const jit::Program& program, std::string_view name) {
  std::set<const jit::Nest*> nests;
  for (const auto& kernel : program.kernels)
    if (kernel.nest && kernel.nest->name.starts_with(name)) nests.insert(kernel.nest.get());
  return nests;
}

namespace {

bool agrees(double got, double want, double scale, double tolerance) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::abs(got - want) <= tolerance * std::abs(want) + tolerance * scale;
}

double largest(const Literal& literal) {
  double most = 0;
  for (std::int64_t k = 0; k < literal.count(); ++k)
    if (std::isfinite(literal.at(k))) most = std::max(most, std::abs(literal.at(k)));
  return most;
}

double tolerance_for(DType dtype, double tolerance) {
  if (dtype == DType::F16) return std::max(tolerance, 4e-3);
  if (dtype == DType::BF16) return std::max(tolerance, 3e-2);
  return tolerance;
}

void expect_same(const Literal& got, const Literal& want, double tolerance) {
  ASSERT_EQ(got.dtype(), want.dtype());
  ASSERT_EQ(got.sizes(), want.sizes());
  // Inputs are of order one: results that cancel are compared at that scale.
  const double scale = is_floating(want.dtype()) ? std::max(1.0, largest(want)) : 0;
  for (std::int64_t k = 0; k < want.count(); ++k) {
    if (is_floating(want.dtype())) {
      ASSERT_TRUE(agrees(got.at(k), want.at(k), scale, tolerance_for(want.dtype(), tolerance)))
          << "element " << k << ": got " << got.at(k) << ", want " << want.at(k);
    } else {
      ASSERT_EQ(got.at_int(k), want.at_int(k)) << "element " << k;
    }
  }
}

}  // namespace

void expect_same_through_bytes(const jit::Program& program) {
  if (!jit::can_archive(program)) return;
  base::ArchiveWriter written;
  written(program);
  base::ArchiveReader reader(written.bytes());
  jit::Program read;
  reader(read);
  EXPECT_TRUE(reader.at_end());
  EXPECT_EQ(nests_of(read), nests_of(program));
  base::ArchiveWriter again;
  again(read);
  EXPECT_EQ(again.bytes(), written.bytes());
}

void expect_program_right(const ir::Graph& graph, const jit::Program& program,
                          const std::vector<Literal>& arguments, const RunOptions& options,
                          double tolerance) {
  SCOPED_TRACE(nests_of(program));
  expect_same_through_bytes(program);
  const std::vector<Literal> want = ir::evaluate(graph, arguments);
  const std::vector<Literal> got = run_program(graph, program, arguments, options);
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < want.size(); ++k) {
    SCOPED_TRACE("output " + std::to_string(k));
    expect_same(got[k], want[k], tolerance);
  }
}

void expect_right(const ir::Graph& graph, const std::vector<Literal>& arguments, double tolerance) {
  for (const auto target : {jit::LowerOptions::Target::Cpu, jit::LowerOptions::Target::Cuda}) {
    for (const bool fuse : {true, false}) {
      const jit::Program program = jit::lower(graph, {.target = target, .rest = {.fuse = fuse}});
      for (const bool in_place : {false, true}) {
        SCOPED_TRACE(std::string(fuse ? "fused" : "not fused") + (in_place ? ", in place" : ""));
        expect_program_right(graph, program, arguments, {.in_place = in_place}, tolerance);
      }
    }
  }
}

void expect_right_at(const ir::Graph& graph, const std::vector<std::int64_t>& sizes,
                     double tolerance) {
  expect_right(graph, random_arguments(graph, sizes), tolerance);
}

const ir::Node* emit_scan(ir::GraphBuilder& b, const std::vector<ir::Value>& operands,
                          ir::Graph body) {
  const ir::GraphRef step{"@step", std::make_shared<const ir::Graph>(std::move(body))};
  return b.call("scan", operands,
                {{"carried", std::int64_t{1}},
                 {"scanned", std::int64_t{1}},
                 {"length", base::parse_symexpr("s0")},
                 {"body", step}});
}

jit::Program lowered(const ir::Graph& graph) { return jit::lower(graph, {}); }

std::vector<std::string> kernels(const ir::Graph& graph) {
  std::vector<std::string> names;
  const jit::Program program = lowered(graph);
  for (const auto& step : program.record.steps)
    names.push_back(program.record.kernels[step.kernel].name);
  return names;
}

std::string text_of(const ir::Graph& graph) {
  std::string text;
  for (const ir::NodePtr& node : graph.nodes()) {
    text += node->value().name() + ": " + node->output().to_string() + " = " +
            std::string(node->op_name()) + "(";
    for (const ir::Value& input : node->inputs()) text += input.name() + " ";
    text += ")\n";
  }
  for (const ir::Value& output : graph.outputs()) text += "return " + output.name() + "\n";
  return text;
}

}  // namespace heddle::test
