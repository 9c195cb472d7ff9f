#include "ir/text.h"

#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <gtest/gtest.h>
#include <limits>

#include "heddle/error.h"
#include "ir/evaluate.h"
#include "tests/support/one_op.h"
#include "tests/support/round_trip.h"

namespace heddle::testing {
namespace {

using ir::Graph;
using ir::GraphBuilder;
using ir::Literal;
using ir::TensorMeta;

TEST(Text, EverythingThatALineCanHold) {
  const Graph graph = expect_canonical(
      R"(graph @main(%x: f32[s0, 128] "input_ids", %t: f32[4, s0]{1, 4}, %w: param f32[128, 128]) {
  assume s0 != 3 "branch in user code"
  %a = add(%x, 1.0: f32)
  %m = matmul(%w, %w) after(%a)
  %r = relu(%a) @{compile = "tail", options = {fast = true, rate = 1.5}, stage = 2}
  %v, %i = topk(%r) {k = 4, axis = -1} @{stage = -1} after(%m, %a)
  %k = const [1, 2, 3, 4]: i64[2, 2]
  %none = const []: f32[0, 3]
  %flag = const true: bool
  %eps = const 1e-05: f32
  %q = pad(%t, none) {low = [1, 0], high = [0, s0]}
  %e = add(%r, %eps)
  write_back %x = %e
  return %m, %r "logits", %v, %i, %k
}
)");
  expect_round_trip(graph);
  EXPECT_EQ(graph.input_label(0), "input_ids");
  EXPECT_EQ(graph.output_label(1), "logits");
  EXPECT_EQ(graph.assumptions()[0].reason, "branch in user code");
  EXPECT_EQ(graph.write_backs().size(), 1u);
}

TEST(Text, InputsAndParametersStandWhereTheyWereDeclared) {
  const Graph graph = expect_canonical(
      "graph @main(%w: param f32[4], %x: f32[4], %u: param f32[4], %v: param f32[4], %y: f32[4]) "
      "{\n"
      "  %a = add(%x, %w)\n  %b = add(%y, %u)\n  %c = add(%a, %v)\n  return %b, %c\n}\n");
  EXPECT_EQ(graph.inputs()[0].node->name(), "x") << "arguments come first in a call";
  EXPECT_EQ(graph.inputs()[1].node->name(), "y");
  expect_round_trip(graph);
}

TEST(Text, CommentsAndSpaceDoNotMatter) {
  const Graph graph = ir::parse(
      "// one\ngraph @main( %x : f32[ s0 ,2*s0+1 ] )// two\n{ %a=exp( %x )//three\nreturn %a}");
  EXPECT_EQ(ir::print(graph),
            "graph @main(%x: f32[s0, 2*s0+1]) {\n  %a = exp(%x)\n  return %a\n}\n");
}

TEST(Text, NestedGraphsFollowAndResultsThatInferenceCannotNamePrintTheirType) {
  const Graph graph = expect_canonical(R"(graph @main(%p: bool[], %x: f32[s0, 128]) {
  %c = cond(%p, %x) {then = @then_0, else = @else_0} : f32[u4, 128]
  %d = exp(%c)
  return %d
}

graph @then_0(%x: f32[s0, 128]) {
  %a = exp(%x)
  return %a
}

graph @else_0(%y: f32[s0, 128]) {
  %b = concat(%y, %y) {axis = 0}
  return %b
}
)");
  expect_round_trip(graph);
  const Literal x = noise(f32, {2, 128});
  const auto chosen = [&](bool flag) {
    const Literal arguments[] = {Literal::scalar_int(boolean, flag), x};
    return ir::evaluate(graph, arguments)[0].sizes()[0];
  };
  EXPECT_EQ(chosen(true), 2);
  EXPECT_EQ(chosen(false), 4);
}

TEST(Text, NumbersReadBackExactly) {
  for (const DType dtype : {f32, f64, f16, bf16}) {
    for (const double value : {0.0, -0.0, 1.0, 0.1, -1e-7, 65504.0, 1e30, 1.0 / 3,
                               std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity(), std::nan("")}) {
      GraphBuilder builder("main");
      const Literal literal = Literal::scalar(dtype, value);
      builder.context.name = "k";
      builder.output(builder.constant(literal));
      const Graph graph = builder.finish();
      const Graph again = ir::parse(ir::print(graph));
      const Literal& read = again.outputs()[0].node->literal("value");
      EXPECT_EQ(read.checksum(), literal.checksum()) << ir::print(graph);
    }
  }
  EXPECT_EQ(ir::print(ir::parse("graph @m() { %k = const 9223372036854775807: i64 return %k }")),
            "graph @m() {\n  %k = const 9223372036854775807: i64\n  return %k\n}\n");
  EXPECT_EQ(ir::print(ir::parse("graph @m() { %k = const 18446744073709551615: u64 return %k }")),
            "graph @m() {\n  %k = const 18446744073709551615: u64\n  return %k\n}\n");
}

TEST(Text, ScalarsThatNobodyNamedStandInOperandLists) {
  GraphBuilder builder("main");
  const ir::Value x = builder.input(meta(f32, {4}), "x");
  const ir::Value two = builder.scalar(f32, 2);
  const ir::Value c0 = builder.emit("mul", {x, two});
  builder.output(builder.emit("add", {c0, two}));
  const Graph graph = builder.finish();
  EXPECT_EQ(ir::print(graph),
            "graph @main(%x: f32[4]) {\n  %v0 = mul(%x, 2.0: f32)\n  %v1 = add(%v0, 2.0: f32)\n"
            "  return %v1\n}\n");
  expect_round_trip(graph);
}

TEST(Text, ConstantNamesAvoidThoseOfTheText) {
  expect_canonical(
      "graph @main(%c0: f32[4]) {\n  %c1 = add(%c0, 2.0: f32)\n  %c2 = mul(%c1, 3.0: f32)\n"
      "  return %c2\n}\n");
}

TEST(Text, LabelsMayHoldAnything) {
  GraphBuilder builder("main");
  const ir::Value x = builder.input(meta(f32, {4}), "x", "a \"b\" \\ \n\t\x01 ){");
  builder.output(x, "}");
  const Graph graph = builder.finish();
  expect_round_trip(graph);
  EXPECT_EQ(ir::parse(ir::print(graph)).input_label(0), graph.input_label(0));
}

TEST(Text, NamesAreMadeOfWhatTheTextCanHold) {
  GraphBuilder builder("main");
  builder.output(builder.input(meta(f32, {4}), "/model/layer.0:out"));
  const Graph graph = builder.finish();
  EXPECT_EQ(graph.inputs()[0].name(), "%_model_layer.0_out");
  expect_round_trip(graph);
}

class TextFile : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() /
             ("heddle_text_" + std::to_string(::getpid()) + ".hir"))
                .string();
    GraphBuilder builder("main");
    const ir::Value w =
        builder.parameter(meta(f32, {8}), std::make_shared<const Literal>(noise(f32, {8})), "w");
    builder.context.name = "k";
    const ir::Value k = builder.constant(noise(f32, {3, 8}));
    builder.output(builder.emit("add", {w, k}));
    graph_ = builder.finish();
  }
  void TearDown() override {
    std::filesystem::remove(path_);
    std::filesystem::remove(path_ + ".bin");
  }
  void overwrite(std::streamoff at, std::string_view bytes) {
    std::fstream file(path_ + ".bin", std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(at, at < 0 ? std::ios::end : std::ios::beg);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

  std::string path_;
  Graph graph_;
};

TEST_F(TextFile, LargeConstantsAndParametersLieInTheSideFile) {
  ir::save(graph_, path_);
  const Graph again = ir::load(path_);
  EXPECT_EQ(ir::print(again), ir::print(graph_));
  EXPECT_EQ(again.structural_hash(), graph_.structural_hash());
  expect_same(ir::evaluate(again, {})[0], ir::evaluate(graph_, {})[0]);
}

TEST_F(TextFile, AChangedByteIsFound) {
  ir::save(graph_, path_);
  overwrite(-1, "x");
  EXPECT_THROW(ir::load(path_), ParseError);
}

TEST_F(TextFile, AFileCutAnywhereIsRefused) {
  ir::save(graph_, path_);
  const auto size = std::filesystem::file_size(path_ + ".bin");
  for (std::uintmax_t cut = size - 1; cut > 19; cut -= 13) {
    std::filesystem::resize_file(path_ + ".bin", cut);
    EXPECT_THROW(ir::load(path_), ParseError) << cut;
  }
}

TEST_F(TextFile, AbsurdSizesAreRefused) {
  ir::save(graph_, path_);
  // The first entry: 19 bytes of magic, an 8-byte length, "k", the dtype, the rank, then the sizes.
  overwrite(19 + 8 + 1 + 8 + 8, std::string(8, '\x7f'));
  EXPECT_THROW(ir::load(path_), ParseError);
}

TEST(TextErrors, NoTextCrashesTheParser) {
  const std::string text = R"(graph @main(%x: f32[s0, 4]{4, 1} "l", %w: param f32[4]) {
  assume s0 <= 7 "r"
  %v, %i = topk(%x) {k = 2, axis = -1} @{a = {b = 1.5}} after(%x) : f32[s0, 2], i64[s0, 2]
  %k = const [1, 2]: i64[1, 2]
  return %v, %k
}
)";
  ir::parse(text);
  for (std::size_t k = 0; k < text.size(); ++k) {
    for (const char c : {'\0', '(', '}', '"', '%', '-', '9', '@'}) {
      std::string broken = text;
      if (c == '\0')
        broken.resize(k);
      else
        broken[k] = c;
      try {
        ir::parse(broken);
      } catch (const Error&) {
      }
    }
  }
}

TEST(Text, AByteOfZeroIsNotTheEnd) {
  using namespace std::literals;
  try {
    ir::parse("graph @main(%x: f32[2]) {\n  return %x\n}\n\0graph"sv);
    FAIL() << "no error";
  } catch (const ParseError& error) {
    EXPECT_EQ(std::string(error.what()), "syntax at 4:1: expected 'graph', got '\\x00'");
  }
}

// Deeper ones overflowed the stack of whoever walked them.
TEST(Text, GraphsNestedTooDeepAreRefused) {
  const auto nested = [](int depth) {
    std::string text;
    for (int k = 0; k < depth; ++k) {
      text += fmt::format("graph @g{}(%x: f32[2]) {{\n", k);
      text += k + 1 < depth ? fmt::format("  %y = invoke(%x) {{body = @g{}}}\n", k + 1)
                            : std::string("  %y = exp(%x)\n");
      text += "  return %y\n}\n";
    }
    return text;
  };
  EXPECT_EQ(ir::parse(nested(200)).nodes().size(), 2u);
  try {
    ir::parse(nested(3000));
    FAIL() << "no error";
  } catch (const ParseError& error) {
    EXPECT_EQ(std::string(error.what()),
              "graph @g200 at 801:12: expected at most 200 graphs in each other, got one more");
  }
}

/// A body that adds twenty times `number` to its operand, and calls `callee`, a body of twenty elements, when there is one.
ir::GraphRef adding(double number, const ir::GraphRef* callee = nullptr) {
  GraphBuilder builder("body");
  ir::Value x = builder.input(TensorMeta::of(DType::F32, {ir::SymExpr(20)}), "x");
  Literal numbers(DType::F32, {20});
  for (std::int64_t k = 0; k < 20; ++k) numbers.set(k, number);
  builder.context.name = "w";
  const ir::Value w = builder.constant(std::move(numbers));
  builder.context.name = {};
  if (callee != nullptr) x = builder.emit("invoke", {x}, {{"body", *callee}});
  builder.output(builder.emit("add", {x, w}));
  return {"@body", std::make_shared<const Graph>(builder.finish())};
}

// Three bodies are called body, one of them in another: each is told from the others, and so are their constants.
TEST(Text, BodiesOfOneNameKeepTheirConstants) {
  const ir::GraphRef first = adding(1);
  const ir::GraphRef second = adding(2);
  const ir::GraphRef outer = adding(4, &second);
  GraphBuilder builder("main");
  ir::Value x = builder.input(TensorMeta::of(DType::F32, {ir::SymExpr(20)}), "x");
  for (const ir::GraphRef& body : {first, outer, first, second})
    x = builder.emit("invoke", {x}, {{"body", body}});
  builder.output(x);
  const Graph graph = builder.finish();
  expect_round_trip(graph);
  const ir::LiteralTable literals = ir::named_literals(graph);
  EXPECT_EQ(literals.size(), 3u);
  EXPECT_EQ(literals.at("body.w")->at(0), 1);
  EXPECT_EQ(literals.at("body_1.w")->at(0), 4);
  EXPECT_EQ(literals.at("body_2.w")->at(0), 2);
  const Graph again = ir::parse(ir::print(graph), &literals);
  const Literal zeros(DType::F32, {20});
  EXPECT_EQ(ir::evaluate(again, std::vector{zeros.clone()})[0].at(7), 1 + 4 + 2 + 1 + 2);
}

// However many paths of calls lead to a constant, it is found once.
TEST(Text, ConstantsOfSharedBodiesAreFoundOnce) {
  ir::GraphRef body = adding(1);
  for (int k = 0; k < 60; ++k) {
    GraphBuilder builder("level");
    ir::Value x = builder.input(TensorMeta::of(DType::F32, {ir::SymExpr(20)}), "x");
    for (int call = 0; call < 2; ++call) x = builder.emit("invoke", {x}, {{"body", body}});
    builder.output(x);
    body = {fmt::format("@level{}", k), std::make_shared<const Graph>(builder.finish())};
  }
  EXPECT_EQ(ir::named_literals(*body.graph).size(), 1u);
}

}  // namespace
}  // namespace heddle::testing
