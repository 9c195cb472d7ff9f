// Each command's output and exit code.

#include "tests/cli/command.h"

#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/json.h"

namespace heddle::cli_test {
namespace {

using test::Json;
using testing::HasSubstr;
using testing::StartsWith;

class Command : public testing::Test {
 protected:
  Command() : scratch_(testing::TempDir() + "heddle_cli_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(scratch_);
    write_file(model(), kModel);
  }
  ~Command() override { std::filesystem::remove_all(scratch_); }

  Ran run(const std::string& arguments) const { return heddle(arguments, scratch_); }
  std::string model() const { return scratch_ + "/model.hir"; }
  std::string path(const std::string& name) const { return scratch_ + "/" + name; }

  static constexpr const char* kModel =
      "graph @main(%x: f32[s0, 4] \"x\") {\n"
      "  %a = relu(%x)\n"
      "  %y = add(%a, %x)\n"
      "  return %y\n"
      "}\n";

 private:
  std::string scratch_;
};

/// A version 1.0 file of f32 values, as NumPy writes it.
std::string npy(const std::string& shape, const std::vector<float>& values) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
  header.append(117 - header.size(), ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size());
  bytes += '\0';
  bytes += header;
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  return bytes;
}

TEST_F(Command, WithoutACommandIsWrongUsage) {
  EXPECT_EQ(run("").code, 2);
  const Ran unknown = run("frobnicate");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.err,
            "heddle: unknown command frobnicate: expected one of run, verify, bench, plan, opt\n");
  EXPECT_EQ(run("run").code, 2);
  EXPECT_EQ(run("--help").code, 0);
}

TEST_F(Command, RunPrintsEachOutput) {
  const Ran ran = run("run " + model() + " --shape x=2x4");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("f32[2, 4] = ["));
}

/// 1 + 2^-8 is 1 in bf16.
TEST_F(Command, PassesThatAreOffByDefaultRunWhereTheyAreNamed) {
  std::string weights = "1.00390625";
  for (int k = 1; k < 64 * 8; ++k) weights += ", 0";
  write_file(path("product.hir"),
             "graph @main(%x: f32[1, 64] \"x\") {\n"
             "  %w = const [" +
                 weights +
                 "]: f32[64, 8]\n"
                 "  %y = matmul(%x, %w)\n"
                 "  return %y\n"
                 "}\n");
  write_file(path("x.npy"), npy("(1, 64)", std::vector<float>(64, 1)));
  const std::string command = "run " + path("product.hir") + " --input x=" + path("x.npy");
  EXPECT_THAT(run(command).out, HasSubstr("[1.0039"));
  EXPECT_THAT(run(command + " --pass bf16-weights").out, HasSubstr("[1, "));
  const Ran unknown = run(command + " --pass frobnicate");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("bf16-products"));
}

TEST_F(Command, RunReadsAndWritesNpy) {
  write_file(path("in.npy"), npy("(1, 4)", {-1, 2, -3, 4}));
  const Ran ran =
      run("run " + model() + " --input x=" + path("in.npy") + " --output-dir " + path("out"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  const std::string bytes = read_file(path("out/0_y.npy"));
  ASSERT_EQ(bytes.size() % 64, 16u);
  EXPECT_THAT(bytes, HasSubstr("'descr': '<f4', 'fortran_order': False, 'shape': (1,4,)"));
  float values[4];
  std::memcpy(values, bytes.data() + bytes.size() - sizeof values, sizeof values);
  EXPECT_THAT(values, testing::ElementsAre(-1, 4, -3, 8));
}

TEST_F(Command, RunIsTheSameTwice) {
  const std::string arguments = "run " + model() + " --json --shape x=3x4";
  const Ran first = run(arguments);
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(first.out, run(arguments).out);
  const Json document = Json::parse(first.out);
  EXPECT_EQ(document["outputs"][0]["name"], "y");
  EXPECT_EQ(document["outputs"][0]["sizes"], Json::array({3, 4}));
}

TEST_F(Command, CpuAndReferenceAgree) {
  const std::string arguments = "run " + model() + " --json --shape x=3x4 --device ";
  EXPECT_EQ(run(arguments + "cpu").out, run(arguments + "reference").out);
}

TEST_F(Command, ReferenceWritesAStateOnce) {
  write_file(path("state.hir"),
             "graph @main(%x: f32[4]) {\n"
             "  %n = mul(%x, 2.0: f32)\n  write_back %x = %n\n  return %x, %n\n}\n");
  const std::string arguments = "run " + path("state.hir") + " --json --device ";
  const Ran reference = run(arguments + "reference");
  EXPECT_EQ(reference.code, 0) << reference.err;
  EXPECT_EQ(reference.out, run(arguments + "cpu").out);
}

TEST_F(Command, WrongInputsAreWrongUsage) {
  EXPECT_EQ(run("run " + model() + " --shape z=1").code, 2);
  EXPECT_EQ(run("run " + model() + " --shape x=1xx").code, 2);
  EXPECT_EQ(run("run " + model() + " --shape x").code, 2);
  EXPECT_EQ(run("run " + model() + " --device toaster").code, 2);
  EXPECT_EQ(run("run " + model() + " --threads -1").code, 2);
  EXPECT_EQ(run("run " + path("model.txt")).code, 2);
  write_file(path("in.npy"), npy("(1, 4)", {-1, 2, -3, 4}));
  const std::string input = " --input x=" + path("in.npy");
  for (const std::string& twice :
       {input + input, input + " --shape x=1x4", std::string(" --shape x=1x4 --shape x=2x4")}) {
    const Ran ran = run("run " + model() + twice);
    EXPECT_EQ(ran.code, 2) << twice;
    EXPECT_EQ(ran.err, "heddle: input x: expected one --input or --shape, got two\n") << twice;
  }
  write_file(path("minus.npy"), npy("(1, -4)", {-1, 2, -3, 4}));
  EXPECT_EQ(run("run " + model() + " --input x=" + path("minus.npy")).err,
            "heddle: read " + path("minus.npy") + ": expected sizes of at least 0, got (1, -4)\n");
}

TEST_F(Command, BrokenModelsAreFailures) {
  write_file(path("broken.onnx"), "not a model");
  const Ran broken = run("run " + path("broken.onnx"));
  EXPECT_EQ(broken.code, 1);
  EXPECT_THAT(broken.err, StartsWith("heddle: "));
  EXPECT_EQ(broken.out, "");
  EXPECT_EQ(run("run " + path("missing.onnx")).code, 1);
  write_file(path("broken.hir"), "graph @main(%x: f32[4]) {\n  return %z\n}\n");
  EXPECT_EQ(run("run " + path("broken.hir")).code, 1);
}

// What a model says is no usage of the command.
TEST_F(Command, WhatAModelSaysOfOptionsAndDevicesIsItsFailure) {
  write_file(path("mark.hir"),
             "graph @main(%x: f32[4]) {\n  %a = exp(%x) @{compile = 3}\n  return %a\n}\n");
  EXPECT_EQ(run("run " + path("mark.hir")).code, 1);
  EXPECT_EQ(run("run " + model() + " --device toaster").code, 2);
  write_file(path("far.hir"), "graph @main(%x: f32[4]@cuda:0) {\n  return %x\n}\n");
  const Ran far = run("run " + path("far.hir"));
  EXPECT_EQ(far.code, 1);
  EXPECT_THAT(
      far.err,
      HasSubstr("input %x at far.hir:1:13: expected the engine's device, cpu, got f32[4]@cuda:0"));
}

TEST_F(Command, BenchHasEveryKey) {
  const Ran ran = run("bench " + model() + " --iterations 5 --json");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Json document = Json::parse(ran.out);
  for (const char* key :
       {"p50_us", "p90_us", "p99_us", "per_second", "load_ms", "compile_ms", "first_call_ms",
        "kernels", "evaluator_steps", "arena_peak_bytes", "rss_peak_bytes"})
    EXPECT_TRUE(document.contains(key)) << key;
  EXPECT_EQ(document["evaluator_steps"], 0);
  EXPECT_GE(document["kernels"], 1);
  EXPECT_GT(document["p50_us"], 0);
  EXPECT_LE(document["p50_us"], document["p99_us"]);
  EXPECT_EQ(run("bench " + model() + " --iterations 0").code, 2);
}

TEST_F(Command, BenchAppendsToCaches) {
  write_file(path("grow.hir"),
             "graph @main(%past: f32[2, s0], %x: f32[2, 1]) {\n"
             "  %all = concat(%past, %x) {axis = 1}\n  %y = reduce_sum(%all) {axes = [1]}\n"
             "  return %y, %all\n}\n");
  const std::string command =
      "bench " + path("grow.hir") + " --shape past=2x50 --shape x=2x1 --iterations 5 --append ";
  const Ran ran = run(command + "past --steps --json");
  ASSERT_EQ(ran.code, 0) << ran.err;
  // What is written is the new column alone.
  for (const Json& step : Json::parse(ran.out)["steps"])
    EXPECT_TRUE(step["kernel"] != "slice_scatter" || step["work"] < 20) << step;
  EXPECT_THAT(run(command + "pst").err, HasSubstr("append: expected an input: past, x, got pst"));
}

TEST_F(Command, BenchTellsTheTimesOfSteps) {
  const std::string command = "bench " + model() + " --iterations 5 --steps";
  const Ran ran = run(command + " --json");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Json steps = Json::parse(ran.out)["steps"];
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0]["step"], 0);
  EXPECT_EQ(steps[0]["kernel"], "relu_add");
  EXPECT_GT(steps[0]["us"], 0);
  EXPECT_EQ(steps[0]["bytes"], 2 * 4 * 4);
  const Ran text = run(command);
  EXPECT_THAT(text.out, HasSubstr("share   step GB/s Gop/s kernel\n"));
  EXPECT_THAT(text.out, HasSubstr(" 100.0 % "));
  EXPECT_THAT(text.out, HasSubstr(" relu_add\n"));
}

TEST_F(Command, BenchTellsWhatSharesTake) {
  const std::string command = "bench " + model() + " --iterations 5 --threads 4 --shares";
  const Ran ran = run(command + " --json");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Json steps = Json::parse(ran.out)["steps"];
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_GT(steps[0]["shared_us"], 0);
  EXPECT_LE(steps[0]["shared_us"], steps[0]["us"]);
  const Ran text = run(command);
  EXPECT_THAT(text.out, HasSubstr("us shared us alone times step kernel\n"));
  EXPECT_THAT(text.out, HasSubstr(" all"));
  EXPECT_THAT(text.out, HasSubstr(" relu_add\n"));
  EXPECT_EQ(run(command + " --steps").code, 2);
}

TEST_F(Command, KernelsForAProcessorByName) {
  const Ran ran = run("run " + model() + " --cpu z80");
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, HasSubstr("EngineOptions::cpu, or HEDDLE_CPU"));
  EXPECT_THAT(ran.err, HasSubstr("got z80"));
}

TEST_F(Command, PlanAsText) {
  const Ran ran = run("plan " + model() + " --shape x=2x4");
  ASSERT_EQ(ran.code, 0) << ran.err;
  for (const char* heading : {"Graph\n", "Guards\n", "Kernels\n", "Order\n", "Memory: "})
    EXPECT_THAT(ran.out, HasSubstr(heading));
}

TEST_F(Command, PlanShowsRegionsWeakEdgesAndEvents) {
  write_file(path("order.hir"),
             "graph @main(%x: f32[8] \"x\") {\n"
             "  %a = exp(%x) @{compile = \"front\"}\n"
             "  %s = reduce_sum(%a) {axes = [0], keepdims = true}\n"
             "  %b = sin(%x) after(%s)\n"
             "  return %b, %s\n"
             "}\n");
  const Ran ran = run("plan " + path("order.hir") + " --threads 1");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("Regions\n  region"));
  EXPECT_THAT(ran.out, testing::ContainsRegex("front +\\{\\} +a\n"));
  EXPECT_THAT(ran.out, HasSubstr("Order\n  step"));
  EXPECT_THAT(ran.out, HasSubstr("- -1"));
  EXPECT_THAT(ran.out, testing::ContainsRegex("Events\n +step +event +value +bytes\n"
                                              " +0 +alloc +a +32\n +0 +launch +exp\n"));
  EXPECT_THAT(ran.out, testing::ContainsRegex(" +1 +free +a +32\n"));
}

// What the user's text calls a value, the plan does, though the names are such as the engine gives.
TEST_F(Command, PlanSpeaksTheNamesOfTheText) {
  write_file(path("names.hir"),
             "graph @main(%rows: f32[s0, 4], %v1: f32[s0, 4] \"second\", %w: f32[4]) {\n"
             "  %v0 = mul(%rows, %v1)\n"
             "  %total = reduce_sum(%v0) {axes = [1], keepdims = true}\n"
             "  %v2 = add(%total, %w)\n"
             "  return %v2\n"
             "}\n");
  const Ran text = run("plan " + path("names.hir") + " --shape second=2x4");
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("graph @main(%rows: f32[s0, 4], %v1: f32[s0, 4] \"second\", "
                                  "%w: f32[4]) {\n"));
  EXPECT_THAT(text.out, HasSubstr("%v0 = mul(%rows, %v1)"));
  const Json plan = Json::parse(run("plan " + path("names.hir") + " --json").out);
  EXPECT_EQ(plan["kernels"][0]["nodes"], Json::array({"v0", "total", "v2"}));
  EXPECT_EQ(plan["kernels"][0]["reads"], Json::array({"rows", "v1", "w"}));
  EXPECT_EQ(plan["kernels"][0]["writes"], Json::array({"v2"}));
  std::vector<std::string> inputs;
  for (const Json& buffer : plan["buffers"])
    if (buffer["role"] == "input") inputs.push_back(buffer["value"]);
  EXPECT_THAT(inputs, testing::ElementsAre("rows", "v1", "w"));
  const Ran wrong = run("run " + path("names.hir") + " --shape rows=2x4 --shape w=5");
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("input w: expected f32[4], got f32[5]"));
}

TEST_F(Command, PlanAsJsonAndPage) {
  const Ran ran = run("plan " + model() + " --json --html " + path("plan.html"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Json document = Json::parse(ran.out);
  for (const char* key : {"guards", "regions", "kernels", "steps", "buffers", "peak_bytes",
                          "lower_bound_bytes", "events"})
    EXPECT_TRUE(document.contains(key)) << key;
  ASSERT_FALSE(document["kernels"].empty());
  const std::string page = read_file(path("plan.html"));
  EXPECT_THAT(page, StartsWith("<!doctype html>"));
  EXPECT_THAT(page, testing::Not(HasSubstr("{{")));
  EXPECT_THAT(page, HasSubstr(document["kernels"][0]["name"].get<std::string>()));
  EXPECT_THAT(page, testing::Not(HasSubstr("http")));
}

TEST_F(Command, OptPrintsWhatItParses) {
  const Ran parsed = run("opt " + model() + " --passes=");
  ASSERT_EQ(parsed.code, 0) << parsed.err;
  write_file(path("again.hir"), parsed.out);
  EXPECT_EQ(run("opt " + path("again.hir") + " --passes=").out, parsed.out);
}

TEST_F(Command, OptRunsPasses) {
  write_file(path("dead.hir"),
             "graph @main(%x: f32[4] \"x\") {\n  %a = relu(%x)\n  %b = exp(%x)\n  return %a\n}\n");
  const Ran kept = run("opt " + path("dead.hir") + " --passes=");
  const Ran removed = run("opt " + path("dead.hir") + " --passes=dce");
  ASSERT_EQ(removed.code, 0) << removed.err;
  EXPECT_THAT(kept.out, HasSubstr("exp("));
  EXPECT_THAT(removed.out, testing::Not(HasSubstr("exp(")));
}

TEST_F(Command, OptMergesSlicesByThatName) {
  write_file(path("slices.hir"),
             "graph @main(%x: f32[10]) {\n"
             "  %a = slice(%x) {start = [2], limit = [10], stride = [2]}\n"
             "  %b = slice(%a) {start = [1], limit = [4], stride = [1]}\n"
             "  return %b\n}\n");
  const Ran merged = run("opt " + path("slices.hir") + " --passes=merge-slices,dce");
  EXPECT_EQ(merged.code, 0) << merged.err;
  EXPECT_EQ(merged.out,
            "graph @main(%x: f32[10]) {\n"
            "  %b = slice(%x) {start = [4], limit = [9], stride = [2]}\n"
            "  return %b\n}\n");
}

TEST_F(Command, OptRefusesUnknownPassesAndText) {
  const Ran unknown = run("opt " + model() + " --passes=frobnicate");
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("frobnicate"));
  write_file(path("broken.hir"), "graph main {");
  EXPECT_EQ(run("opt " + path("broken.hir") + " --passes=dce").code, 1);
}

TEST_F(Command, TellsItsVersion) {
  const Ran ran = run("--version");
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, ::testing::MatchesRegex("heddle [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

// What the command line says is right, and what lies on the disk is not: a failure, as everywhere.
TEST_F(Command, FilesThatAreNotThereAreFailures) {
  for (const char* command : {"run ", "bench ", "plan ", "opt "}) {
    const Ran ran = run(command + path("missing.hir"));
    EXPECT_EQ(ran.code, 1) << command;
    EXPECT_THAT(ran.err, HasSubstr("missing.hir")) << command;
  }
  EXPECT_EQ(run("run " + path("missing.onnx")).code, 1);
  EXPECT_EQ(run("run " + model() + " --input x=" + path("missing.npy")).code, 1);
  const Ran nowhere = run("verify " + path("nowhere"));
  EXPECT_EQ(nowhere.code, 1);
  EXPECT_THAT(nowhere.err, HasSubstr("expected a case, or a folder of cases, got no such folder"));
  const Ran empty = run("verify " + path(""));
  EXPECT_EQ(empty.code, 1);
  EXPECT_THAT(empty.err, HasSubstr("got no folder with model.onnx in it"));
}

TEST_F(Command, VerifyReportsBrokenCases) {
  std::filesystem::create_directories(path("cases/broken/test_data_set_0"));
  write_file(path("cases/broken/model.onnx"), "not a model");
  const Ran ran = run("verify " + path("cases"));
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(ran.out, StartsWith("FAIL broken: "));
  EXPECT_THAT(ran.out, testing::EndsWith("0 passed, 1 failed, 0 skipped\n"));
}

}  // namespace
}  // namespace heddle::cli_test
