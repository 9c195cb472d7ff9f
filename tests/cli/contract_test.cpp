// What the architecture page says of the command line, sentence by sentence.

#include <cstring>
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/cli/command.h"
#include "tests/cli/onnx_bytes.h"
#include "tests/support/json.h"

namespace heddle::cli_test {
namespace {

using test::Json;
using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class Contract : public testing::Test {
 protected:
  Contract() : scratch_(testing::TempDir() + "heddle_contract_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(scratch_);
    write_file(path("relu.onnx"), model_bytes("Relu"));
    write_file(path("two.hir"),
               "graph @main(%x: f32[s0, 2] \"x\", %i: i64[s1] \"i\") {\n"
               "  %y = relu(%x)\n"
               "  return %y \"a/b c\", %i\n"
               "}\n");
  }
  ~Contract() override { std::filesystem::remove_all(scratch_); }

  Ran run(const std::string& arguments) const { return heddle(arguments, scratch_); }
  std::string path(const std::string& name) const { return scratch_ + "/" + name; }
  /// A case in the layout of the ONNX backend test.
  void write_case(const std::string& name, const std::string& model, const std::string& input,
                  const std::string& output) const {
    const std::string set = path("cases/" + name + "/test_data_set_0");
    std::filesystem::create_directories(set);
    write_file(path("cases/" + name + "/model.onnx"), model);
    write_file(set + "/input_0.pb", input);
    write_file(set + "/output_0.pb", output);
  }
  Json plan(const std::string& text) const {
    write_file(path("plan.hir"), text);
    const Ran ran = run("plan " + path("plan.hir") + " --json");
    EXPECT_EQ(ran.code, 0) << ran.err;
    return Json::parse(ran.out);
  }

 private:
  std::string scratch_;
};

TEST_F(Contract, OnnxAndHirModelsRun) {
  EXPECT_EQ(run("run " + path("relu.onnx")).code, 0);
  EXPECT_EQ(run("run " + path("two.hir")).code, 0);
}

TEST_F(Contract, RunPrintsNameDTypeSizesAndValues) {
  write_file(path("x.pb"), tensor_bytes({1, 2}, {-1, 5}));
  const Ran ran = run("run " + path("relu.onnx") + " --input x=" + path("x.pb"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "y: f32[1, 2] = [0, 5]\n");
  EXPECT_EQ(ran.err, "");
}

TEST_F(Contract, StringsAreReadComparedAndPrintedAsSuch) {
  const std::string model = model_bytes("Identity", kOnnxString);
  const std::string text =
      text_bytes({1, 2}, {"zwei W\xc3\xb6rter \xe2\x82\xac \xf0\x9f\x99\x82", ""});
  write_file(path("same.onnx"), model);
  write_file(path("x.pb"), text);
  const std::string command = "run " + path("same.onnx") + " --input x=" + path("x.pb");
  const Ran ran = run(command);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "y: string[1, 2] = [zwei W\xc3\xb6rter \xe2\x82\xac \xf0\x9f\x99\x82, ]\n");
  const Json output = Json::parse(run(command + " --json").out)["outputs"][0];
  EXPECT_EQ(output["dtype"], "string");
  EXPECT_EQ(output["values"][0], "zwei W\xc3\xb6rter \xe2\x82\xac \xf0\x9f\x99\x82");
  EXPECT_EQ(run(command + " --output-dir " + path("strings")).code, 0);
  const Ran again = run("run " + path("same.onnx") + " --input x=" + path("strings/0_y.npy"));
  EXPECT_EQ(again.out, ran.out) << again.err;
  const Ran wrong = run("run " + path("relu.onnx") + " --input x=" + path("strings/0_y.npy"));
  EXPECT_EQ(wrong.code, 1) << "codes are no numbers";
  EXPECT_THAT(wrong.err, HasSubstr("expected little-endian floats"));
  EXPECT_EQ(run("run " + path("same.onnx")).code, 0) << "strings are made where none are given";
  write_case("equal", model, text, text);
  write_case("unequal", model, text, text_bytes({1, 2}, {"zwei", ""}));
  EXPECT_THAT(run("verify " + path("cases")).out,
              testing::EndsWith("1 passed, 1 failed, 0 skipped\n"));
}

TEST_F(Contract, RunPrintsIntegersExactlyAndWhatJsonHasNoNumbersFor) {
  write_file(path("exact.hir"),
             "graph @main(%x: f32[1] \"x\") {\n"
             "  %i = const [9007199254740993, -9223372036854775808, 7]: i64[3]\n"
             "  %f = const [inf, -inf, nan]: f32[3]\n"
             "  return %i, %f\n"
             "}\n");
  EXPECT_EQ(run("run " + path("exact.hir")).out,
            "i: i64[3] = [9007199254740993, -9223372036854775808, 7]\n"
            "f: f32[3] = [inf, -inf, nan]\n");
  const Json outputs = Json::parse(run("run " + path("exact.hir") + " --json").out)["outputs"];
  EXPECT_EQ(outputs[0]["values"].dump(), "[9007199254740993,-9223372036854775808,7]");
  EXPECT_EQ(outputs[1]["values"].dump(), "[\"inf\",\"-inf\",\"nan\"]");
}

TEST_F(Contract, FoldersWhereFilesBelongAreFailuresThatNameThem) {
  std::filesystem::create_directories(path("folder.hir"));
  std::filesystem::create_directories(path("folder.npy"));
  write_file(path("file"), "");
  for (const std::string& arguments :
       {"run " + path("folder.hir"), "run " + path("two.hir") + " --input x=" + path("folder.npy"),
        "run " + path("two.hir") + " --output-dir " + path("file") + "/inside"}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.code, 1) << arguments;
    EXPECT_THAT(ran.err, Not(HasSubstr("internal error"))) << arguments;
    EXPECT_THAT(ran.err, AnyOf(HasSubstr(path("folder")), HasSubstr(path("file")))) << arguments;
  }
}

TEST_F(Contract, SizesAreToldByShapesOfExpressions) {
  write_file(path("odd.hir"),
             "graph @main(%x: f32[2*s0+1] \"x\", %y: f32[s0] \"y\") {\n"
             "  %z = neg(%y)\n"
             "  return %x, %z\n"
             "}\n");
  EXPECT_THAT(run("run " + path("odd.hir") + " --shape x=7").out, HasSubstr("z: f32[3]"));
}

TEST_F(Contract, UnnamedDynamicSizesAreOneAndShapeRepeats) {
  const auto sizes = [&](const std::string& more) {
    const Ran ran = run("run " + path("two.hir") + " --json" + more);
    EXPECT_EQ(ran.code, 0) << ran.err;
    const Json outputs = Json::parse(ran.out)["outputs"];
    return Json::array({outputs[0]["sizes"], outputs[1]["sizes"]});
  };
  EXPECT_EQ(sizes(""), Json::parse("[[1, 2], [1]]"));
  EXPECT_EQ(sizes(" --shape i=3"), Json::parse("[[1, 2], [3]]"));
  EXPECT_EQ(sizes(" --shape i=3 --shape x=5x2"), Json::parse("[[5, 2], [3]]"));
}

TEST_F(Contract, MissingIntegersAreZeroOrOneAndFloatsNormal) {
  write_file(path("echo.hir"),
             "graph @main(%i: i64[6] \"i\", %x: f32[4000] \"x\") {\n"
             "  %m = reduce_mean(%x) {axes = [0]}\n"
             "  %v = variance(%x) {axes = [0]}\n"
             "  return %i, %m, %v\n"
             "}\n");
  const Json outputs = Json::parse(run("run " + path("echo.hir") + " --json").out)["outputs"];
  const auto bits = outputs[0]["values"].get<std::vector<double>>();
  EXPECT_THAT(bits, Each(AnyOf(0, 1)));
  EXPECT_THAT(bits, testing::Contains(0));
  EXPECT_THAT(bits, testing::Contains(1));
  EXPECT_NEAR(outputs[1]["values"][0].get<double>(), 0, 0.1);
  EXPECT_NEAR(outputs[2]["values"][0].get<double>(), 1, 0.1);
}

TEST_F(Contract, OutputFilesAreCalledByIndexAndSafeName) {
  const Ran ran = run("run " + path("two.hir") + " --output-dir " + path("out"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(std::filesystem::exists(path("out/0_a_b_c.npy")));
  EXPECT_TRUE(std::filesystem::exists(path("out/1_i.npy")));
}

TEST_F(Contract, Bf16IsWrittenAsF32) {
  write_file(path("bf16.hir"),
             "graph @main(%x: bf16[2] \"x\") {\n"
             "  %y = relu(%x)\n"
             "  return %y \"y\"\n"
             "}\n");
  const Ran ran = run("run " + path("bf16.hir") + " --output-dir " + path("out"));
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(read_file(path("out/0_y.npy")), HasSubstr("'descr': '<f4'"));
}

TEST_F(Contract, TheSimulatedDeviceRunsAModelWhereItIsAskedFor) {
  const Ran ran = run("run " + path("relu.onnx") + " --device cuda-sim");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, run("run " + path("relu.onnx")).out);
}

TEST_F(Contract, DevicesAreParsedAndThoseThatCannotExecuteAreFailures) {
  for (const std::string device : {"cuda:7", "cuda:77"}) {
    const Ran ran = run("run " + path("relu.onnx") + " --device " + device);
    EXPECT_EQ(ran.code, 1) << device;
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, StartsWith("heddle: "));
  }
  for (const std::string command : {"run", "bench", "plan"})
    EXPECT_EQ(run(command + " " + path("relu.onnx") + " --device gpu").code, 2) << command;
  EXPECT_EQ(run("verify " + path("") + " --device gpu").code, 2);
}

TEST_F(Contract, ThreadsMayBeGiven) {
  EXPECT_EQ(run("run " + path("relu.onnx") + " --threads 2").code, 0);
  EXPECT_EQ(run("run " + path("relu.onnx") + " --threads two").code, 2);
}

TEST_F(Contract, UnknownOptionsAreWrongUsage) {
  for (const std::string command : {"run", "verify", "bench", "plan", "opt"}) {
    const Ran ran = run(command + " " + path("relu.onnx") + " --frobnicate");
    EXPECT_EQ(ran.code, 2) << command;
    EXPECT_EQ(ran.out, "") << command;
    EXPECT_NE(ran.err, "") << command;
  }
}

TEST_F(Contract, EveryCommandButOptTakesTheModelsOptions) {
  for (const std::string command : {"run", "verify", "bench", "plan"})
    for (const std::string option : {"--device", "--threads", "--shape", "--input", "--pass"})
      EXPECT_THAT(run(command + " --help").out, HasSubstr(option)) << command;
  EXPECT_THAT(run("opt --help").out, Not(HasSubstr("--device")));
}

TEST_F(Contract, VerifyReportsEachCaseThatDoesNotPass) {
  const std::string x = tensor_bytes({1, 2}, {-1, 5});
  write_case("a_pass", model_bytes("Relu"), x, tensor_bytes({1, 2}, {0, 5}));
  write_case("b_wrong", model_bytes("Relu"), x, tensor_bytes({1, 2}, {0, 6}));
  write_case("c_shape", model_bytes("Relu"), x, tensor_bytes({2}, {0, 5}));
  write_case("d_unknown", model_bytes("Frobnicate"), x, x);
  const std::string text = text_bytes({1, 2}, {"a", "b"});
  write_case("e_string", model_bytes("Relu", kOnnxString), text, text);
  write_case("f_broken", "not a model", x, x);
  const Ran ran = run("verify " + path("cases"));
  EXPECT_EQ(ran.code, 1);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < ran.out.size(); at = ran.out.find('\n', at) + 1)
    lines.push_back(ran.out.substr(at, ran.out.find('\n', at) - at));
  EXPECT_THAT(lines,
              testing::ElementsAre("FAIL b_wrong: output 0: element 1: expected 6, got 5",
                                   "FAIL c_shape: output 0: expected f32[2], got f32[1, 2]",
                                   StartsWith("SKIP d_unknown: "), StartsWith("SKIP e_string: "),
                                   StartsWith("FAIL f_broken: "), "1 passed, 3 failed, 2 skipped"));
}

TEST_F(Contract, VerifyTakesCasesAndFoldersOfCasesAndSucceedsWhenNoneFails) {
  const std::string x = tensor_bytes({1, 2}, {-1, 5});
  write_case("one", model_bytes("Relu"), x, tensor_bytes({1, 2}, {0, 5}));
  write_case("two", model_bytes("Frobnicate"), x, x);
  const Ran folder = run("verify " + path("cases"));
  EXPECT_EQ(folder.code, 0);
  EXPECT_THAT(folder.out, testing::EndsWith("1 passed, 0 failed, 1 skipped\n"));
  const Ran both = run("verify " + path("cases/one") + " " + path("cases"));
  EXPECT_THAT(both.out, testing::EndsWith("2 passed, 0 failed, 1 skipped\n"));
  const Ran document = run("verify --json " + path("cases"));
  EXPECT_EQ(Json::parse(document.out)["evaluator_steps"], 0);
  EXPECT_EQ(Json::parse(document.out)["passed"], 1);
}

TEST_F(Contract, VerifyPassesNoCaseThatNothingIsComparedIn) {
  const std::string x = tensor_bytes({1, 2}, {-1, 5});
  write_case("one", model_bytes("Relu"), x, tensor_bytes({1, 2}, {0, 5}));
  std::filesystem::remove(path("cases/one/test_data_set_0/output_0.pb"));
  const Ran none = run("verify " + path("cases"));
  EXPECT_EQ(none.code, 0);
  EXPECT_EQ(none.out,
            "SKIP one: test_data_set_0: no output_0.pb to compare with\n"
            "0 passed, 0 failed, 1 skipped\n");
  write_file(path("cases/one/test_data_set_0/output_0.pb"), tensor_bytes({1, 2}, {0, 5}));
  write_file(path("cases/one/test_data_set_0/output_1.pb"), tensor_bytes({1, 2}, {0, 5}));
  EXPECT_EQ(run("verify " + path("cases")).out,
            "FAIL one: expected 2 outputs, got 1\n0 passed, 1 failed, 0 skipped\n");
}

TEST_F(Contract, VerifySkipsCasesOfRandomNumbers) {
  const std::string x = tensor_bytes({1, 2}, {0, 1});
  write_case("one", model_bytes("Bernoulli"), x, x);
  EXPECT_EQ(
      run("verify " + path("cases")).out,
      "SKIP one: verify: the model: expected the same outputs in each run, got random numbers\n"
      "0 passed, 0 failed, 1 skipped\n");
}

TEST_F(Contract, VerifyTakesNumbersThatMeanSomething) {
  const std::string x = tensor_bytes({1, 2}, {-1, 5});
  write_case("one", model_bytes("Relu"), x, tensor_bytes({1, 2}, {0, 5}));
  for (const std::string option :
       {"--jobs -1", "--jobs two", "--rtol nan", "--rtol -1", "--rtol inf", "--atol -1e-9"}) {
    const Ran ran = run("verify " + path("cases") + " " + option);
    EXPECT_EQ(ran.code, 2) << option;
    EXPECT_THAT(ran.err, HasSubstr("expected a number >= 0, got ")) << option;
  }
  EXPECT_EQ(run("verify --jobs 1 --rtol 0 --atol 1e-9 " + path("cases")).code, 0);
}

TEST_F(Contract, VerifyToleratesAsItIsTold) {
  const std::string x = tensor_bytes({1, 2}, {1, 1000});
  write_case("near", model_bytes("Relu"), x, tensor_bytes({1, 2}, {1, 1000.9F}));
  EXPECT_EQ(run("verify " + path("cases")).code, 0);
  EXPECT_EQ(run("verify --rtol 1e-4 " + path("cases")).code, 1);
  EXPECT_EQ(run("verify --rtol 1e-4 --atol 1 " + path("cases")).code, 0);
  write_case("near", model_bytes("Relu"), x, tensor_bytes({1, 2}, {1, 1001.1F}));
  EXPECT_EQ(run("verify " + path("cases")).code, 1);
}

TEST_F(Contract, VerifyTakesNanForNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string x = tensor_bytes({1, 2}, {nan, 1});
  write_case("nan", model_bytes("Relu"), x, x);
  EXPECT_EQ(run("verify " + path("cases")).code, 0);
  write_case("nan", model_bytes("Relu"), x, tensor_bytes({1, 2}, {0, 1}));
  EXPECT_EQ(run("verify " + path("cases")).code, 1);
}

TEST_F(Contract, BenchsFirstCallIncludesTheCompile) {
  const Ran ran = run("bench " + path("relu.onnx") + " --iterations 3 --json");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Json document = Json::parse(ran.out);
  EXPECT_GE(document["first_call_ms"], document["compile_ms"]);
  EXPECT_GT(document["load_ms"], 0);
  EXPECT_EQ(document["kernels"], 1);
  EXPECT_GT(document["rss_peak_bytes"], 1000000);
}

TEST_F(Contract, ThePlanSaysWhatRunsWhenAndWhere) {
  const Json document = plan(
      "graph @main(%x: f32[s0, 64] \"x\", %w: f32[64, 64] \"w\") {\n"
      "  %a = matmul(%x, %w) @{compile = \"mlp\"}\n"
      "  %b = softmax(%a) {axis = -1} @{compile = \"mlp\"}\n"
      "  %c = reduce_max(%w) {axes = [0]} after(%a)\n"
      "  %d = matmul(%b, %w)\n"
      "  return %d, %c\n"
      "}\n");
  for (const Json& guard : document["guards"]) EXPECT_TRUE(guard.is_string());
  ASSERT_EQ(document["regions"].size(), 1u);
  EXPECT_EQ(document["regions"][0]["id"], "mlp");
  EXPECT_TRUE(document["regions"][0]["options"].is_object());
  EXPECT_THAT(document["regions"][0]["nodes"].get<std::vector<std::string>>(),
              testing::Contains("a"));
  bool weak = false;
  const std::size_t count = document["steps"].size();
  std::vector<std::string> names;
  std::map<std::string, std::string> region_of;
  for (const Json& kernel : document["kernels"]) {
    names.push_back(kernel["name"]);
    for (const Json& node : kernel["nodes"]) region_of[node] = kernel["region"];
    EXPECT_EQ(kernel["unit"] == "", kernel["region"] == "") << kernel.dump();
    EXPECT_THAT(kernel["kind"].get<std::string>(), AnyOf("jit", "library", "custom", "copy"));
    for (const char* key : {"region", "nodes", "reads", "writes"})
      EXPECT_TRUE(kernel.contains(key)) << key;
  }
  for (std::size_t k = 0; k < count; ++k) {
    const Json& step = document["steps"][k];
    EXPECT_EQ(step["index"], k);
    EXPECT_THAT(names, testing::Contains(step["kernel"].get<std::string>()));
    EXPECT_TRUE(step["waits_for"].is_array());
    EXPECT_TRUE(step["stream"].is_number());
    for (const Json& edge : step["edges"]) {
      EXPECT_LT(edge["from"], k);
      EXPECT_THAT(edge["kind"].get<std::string>(), AnyOf("strong", "weak"));
      weak = weak || edge["kind"] == "weak";
    }
  }
  EXPECT_TRUE(weak) << document["steps"].dump();
  // Kernels name regions by id; each node of a region is computed by kernels of it.
  for (const Json& region : document["regions"])
    for (const std::string node : region["nodes"]) EXPECT_EQ(region_of.at(node), region["id"]);
  EXPECT_EQ(region_of.at("d"), "");
}

TEST_F(Contract, ThePlansBuffersEventsAndBytesAddUp) {
  const Json document = plan(
      "graph @main(%x: f32[100, 64] \"x\", %w: f32[64, 64] \"w\") {\n"
      "  %a = matmul(%x, %w)\n"
      "  %b = matmul(%a, %w)\n"
      "  %c = matmul(%b, %w)\n"
      "  return %c\n"
      "}\n");
  std::int64_t peak = 0;
  for (const Json& buffer : document["buffers"]) {
    for (const char* key :
         {"value", "role", "bytes", "offset", "first_step", "last_step", "alias_of"})
      EXPECT_TRUE(buffer.contains(key)) << key;
    EXPECT_EQ(buffer["role"] == "intermediate", buffer["offset"].is_number()) << buffer.dump();
    if (!buffer["offset"].is_number()) continue;
    EXPECT_LE(buffer["first_step"], buffer["last_step"]);
    peak =
        std::max(peak, buffer["offset"].get<std::int64_t>() + buffer["bytes"].get<std::int64_t>());
  }
  EXPECT_LE(peak, document["peak_bytes"].get<std::int64_t>());
  EXPECT_LE(document["lower_bound_bytes"], document["peak_bytes"]);
  EXPECT_EQ(document["lower_bound_bytes"], 2 * 100 * 64 * 4);
  std::int64_t live = 0;
  std::int64_t most = 0;
  std::size_t launches = 0;
  for (const Json& event : document["events"]) {
    const std::string kind = event["kind"];
    if (kind == "alloc") live += event["bytes"].get<std::int64_t>();
    if (kind == "free") live -= event["bytes"].get<std::int64_t>();
    launches += kind == "launch";
    most = std::max(most, live);
  }
  EXPECT_EQ(live, 0);
  EXPECT_EQ(most, document["lower_bound_bytes"]);
  EXPECT_EQ(launches, document["steps"].size());
}

// A value that takes another's bytes in place names it, and is counted once.
TEST_F(Contract, ThePlansBytesAddUpWhereValuesLieInPlace) {
  const Json document = plan(
      "graph @main(%x: f32[8, 64] \"x\", %w: f32[64, 64] \"w\") {\n"
      "  %a = matmul(%x, %w)\n"
      "  %b = softmax(%a) {axis = -1}\n"
      "  %c = matmul(%b, %w)\n"
      "  %d = softmax(%c) {axis = -1}\n"
      "  %e = matmul(%d, %w)\n"
      "  %f = add(%e, %b)\n"
      "  return %f\n"
      "}\n");
  std::map<std::string, Json> buffers;
  std::map<std::string, std::int64_t> live;  // by value
  for (const Json& buffer : document["buffers"]) buffers[buffer["value"]] = buffer;
  const auto root = [&](std::string value) {
    while (!buffers.at(value)["alias_of"].is_null()) value = buffers.at(value)["alias_of"];
    return value;
  };
  std::set<std::string> in_place;
  for (const auto& [value, buffer] : buffers) {
    if (buffer["alias_of"].is_null() || buffer["role"] != "intermediate") continue;
    in_place.insert(value);
    EXPECT_EQ(buffer["offset"], buffers.at(root(value))["offset"]) << value;
    EXPECT_EQ(buffer["in_place"], true) << value;
    EXPECT_EQ(buffer["first_step"], buffers.at(buffer["alias_of"])["last_step"]) << value;
  }
  EXPECT_FALSE(in_place.empty()) << document["buffers"].dump();
  std::int64_t sum = 0;
  std::int64_t most = 0;
  for (const Json& event : document["events"]) {
    const std::string kind = event["kind"];
    if (kind == "launch") continue;
    const std::int64_t bytes = event["bytes"];
    EXPECT_EQ(in_place.count(event["value"]), 0u) << event.dump();
    EXPECT_EQ(live[event["value"]], kind == "alloc" ? 0 : bytes) << event.dump();
    live[event["value"]] = kind == "alloc" ? bytes : 0;
    sum += kind == "alloc" ? bytes : -bytes;
    most = std::max(most, sum);
  }
  EXPECT_EQ(sum, 0);
  EXPECT_EQ(most, document["lower_bound_bytes"]);
  EXPECT_EQ(most, document["peak_bytes"]);
}

// One body in two units, since one call has options of its own: two graphs, which nested plans tell apart.
TEST_F(Contract, GraphsOfOneNameAreTold) {
  const Json document = plan(
      "graph @main(%x: f32[4], %y: f32[8]) {\n"
      "  %a = invoke(%x) {body = @b}\n"
      "  %m = invoke(%y) {body = @b} @{compile = \"r\"}\n"
      "  %n = invoke(%x) {body = @b}\n"
      "  return %a, %m, %n\n"
      "}\n"
      "graph @b(%x: f32[s0]) {\n  %c = cumsum(%x) {axis = 0}\n  return %c\n}\n");
  std::vector<std::string> names;
  std::vector<std::string> regions;
  for (const Json& graph : document["graphs"]) {
    names.push_back(graph["name"]);
    regions.push_back(graph["nodes"].back()["region"]);
  }
  EXPECT_THAT(names, testing::ElementsAre("main", "b", "b_1"));
  std::vector<std::string> run;
  for (const Json& step : document["steps"]) run.push_back(step["nested"][0]["graph"]);
  EXPECT_THAT(run, testing::ElementsAre("b", "b_1", "b"));
  EXPECT_EQ(regions[1], "");
  EXPECT_NE(regions[2], "");
}

TEST_F(Contract, ThePlanHoldsTheGraphsAndTheStagesOfItsSteps) {
  const Json document = plan(
      "graph @main(%x: f32[s0, 4] \"x\", %p: bool[] \"p\") {\n"
      "  %a = relu(%x) @{compile = \"front\"}\n"
      "  %b = exp(%x) after(%a)\n"
      "  %v, %i = topk(%b) {k = 2}\n"
      "  %c = cond(%p, %a) {then = @same, else = @negated}\n"
      "  return %v, %c \"chosen\"\n"
      "}\n"
      "graph @same(%x: f32[s0, 4]) {\n  %y = tanh(%x)\n  return %y\n}\n"
      "graph @negated(%x: f32[s0, 4]) {\n  %y = neg(%x)\n  return %y\n}\n");
  std::vector<std::string> names;
  for (const Json& graph : document["graphs"]) names.push_back(graph["name"]);
  EXPECT_THAT(names, testing::ElementsAre("main", "same", "negated"));
  std::map<std::string, Json> nodes;
  for (const Json& node : document["graphs"][0]["nodes"]) nodes[node["name"]] = node;
  EXPECT_EQ(nodes["a"]["op"], "relu");
  EXPECT_EQ(nodes["a"]["region"], "region_0");
  EXPECT_EQ(nodes["b"]["after"], Json::array({"%a"}));
  EXPECT_EQ(nodes["v"]["names"], Json::array({"%v", "%i"}));
  EXPECT_EQ(nodes["v"]["inputs"], Json::array({"%b"}));
  EXPECT_EQ(nodes["v"]["text"], "%v, %i = topk(%b) {k = 2, axis = -1} : f32[s0, 2], i64[s0, 2]");
  EXPECT_EQ(document["graphs"][0]["outputs"][1], Json::parse(R"({"value":"%c","label":"chosen"})"));
  std::size_t stage = 0;
  for (const Json& step : document["steps"]) {
    EXPECT_GE(step["stage"], stage);
    stage = step["stage"];
  }
  EXPECT_GT(stage, 0u);
}

TEST_F(Contract, SizesThatOnlyTheRunTellsAreShownAsSuch) {
  const std::string text =
      "graph @main(%p: bool[] \"p\", %x: f32[s0] \"x\") {\n"
      "  %a = exp(%x)\n"
      "  %c = cond(%p, %a) {then = @one, else = @two} : f32[u0]\n"
      "  %s = cumsum(%c) {axis = 0}\n"
      "  %o = add(%s, %c)\n"
      "  return %o \"o\"\n"
      "}\n"
      "graph @one(%x: f32[s0]) {\n  %y = neg(%x)\n  return %y\n}\n"
      "graph @two(%x: f32[s0]) {\n  %y = concat(%x, %x) {axis = 0}\n  return %y\n}\n";
  const Json document = plan(text);
  EXPECT_EQ(document["steps"][0]["phase"], 0);
  EXPECT_EQ(document["steps"][1]["phase"], 1);
  EXPECT_EQ(document["steps"][1]["nested"].size(), 2u);
  EXPECT_TRUE(document["steps"].back()["work"].is_null());
  for (const Json& buffer : document["buffers"]) {
    if (buffer["value"] == "a") {
      EXPECT_EQ(buffer["bytes"], 4);
    } else if (buffer["value"] == "c" || buffer["value"] == "s") {
      EXPECT_TRUE(buffer["bytes"].is_null());
    }
  }
  int unknown = 0;
  for (const Json& event : document["events"]) unknown += event["bytes"].is_null() ? 1 : 0;
  EXPECT_GE(unknown, 2);
  const std::string model = path("plan.hir");
  const std::string shapes = " --shape x=6 ";
  EXPECT_EQ(run("plan " + model + shapes).code, 0);
  EXPECT_EQ(run("plan " + model + shapes + "--html " + path("plan.html")).code, 0);
  EXPECT_THAT(run("run " + model + shapes).out, AnyOf(HasSubstr("f32[6]"), HasSubstr("f32[12]")));
  const auto sizes = [&](const std::string& device) {
    const std::string out = run("run " + model + shapes + device).out;
    return out.substr(0, out.find('='));
  };
  EXPECT_EQ(sizes(""), sizes("--device reference"));
  EXPECT_EQ(run("bench " + model + shapes + "--iterations 2").code, 0);
}

TEST_F(Contract, OptReadsStandardInput) {
  const std::string text = read_file(path("two.hir"));
  const std::string out = path("opt.txt");
  const std::string line = "cat " + path("two.hir") + " | " + HEDDLE_COMMAND + " opt >" + out;
  ASSERT_EQ(std::system(line.c_str()), 0);
  EXPECT_EQ(read_file(out), run("opt " + path("two.hir") + " --passes=").out);
}

TEST_F(Contract, OptPrintsTypesWhenAsked) {
  EXPECT_THAT(run("opt " + path("two.hir")).out, HasSubstr("%y = relu(%x)\n"));
  EXPECT_THAT(run("opt " + path("two.hir") + " --types").out,
              HasSubstr("%y = relu(%x) : f32[s0, 2]\n"));
}

TEST_F(Contract, TheEvaluatorWorksOnlyWhenAskedFor) {
  const auto steps = [&](const std::string& device) {
    const Ran ran = run("bench " + path("relu.onnx") + " --iterations 1 --json --device " + device);
    return Json::parse(ran.out)["evaluator_steps"].get<int>();
  };
  EXPECT_EQ(steps("cpu"), 0);
  EXPECT_GT(steps("reference"), 0);
}

}  // namespace
}  // namespace heddle::cli_test
