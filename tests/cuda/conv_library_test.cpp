// Convolutions by cuDNN, which the simulator brings too: measured in the background, taken by plans, captured into graphs. The
// simulator's library offers engines first whose results are no plain sums.
#include <gmock/gmock.h>
#include <set>
#include <span>
#include <string>

#include "tests/cuda/library_support.h"

namespace heddle::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

/// A convolution of %x by %w and what follows it, which may read %r.
struct Case {
  const char* name;
  const char* x;  ///< sizes
  const char* w;
  const char* window;  ///< attributes
  Sizes x_sizes, w_sizes;
  const char* residual = nullptr;  ///< sizes
  Sizes residual_sizes{};
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"around",
       "3, 5, 7, 9",
       "19, 5, 3, 3",
       "strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1]",
       {3, 5, 7, 9},
       {19, 5, 3, 3},
       "3, 19, 7, 9",
       {3, 19, 7, 9}},
      // A workspace, padding that differs before and after, and rows that no window reaches.
      {"strided",
       "2, 16, 8, 10",
       "24, 16, 3, 3",
       "strides = [2, 3], pads_low = [0, 2], pads_high = [1, 0], dilations = [1, 1]",
       {2, 16, 8, 10},
       {24, 16, 3, 3}},
      {"cut",
       "2, 8, 10, 12",
       "16, 8, 3, 2",
       "strides = [2, 2], pads_low = [1, 0], pads_high = [1, 0], dilations = [1, 1]",
       {2, 8, 10, 12},
       {16, 8, 3, 2}},
      {"dilated",
       "2, 8, 6, 9",
       "32, 8, 3, 2",
       "strides = [1, 2], pads_low = [2, 0], pads_high = [2, 3], dilations = [2, 3]",
       {2, 8, 6, 9},
       {32, 8, 3, 2}},
      {"grouped",
       "2, 18, 4, 9",
       "51, 6, 3, 3",
       "strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1], groups = 3",
       {2, 18, 4, 9},
       {51, 6, 3, 3},
       "2, 51, 4, 9",
       {2, 51, 4, 9}},
      {"line",
       "2, 9, 70",
       "16, 9, 5",
       "strides = [2], pads_low = [2], pads_high = [1], dilations = [1]",
       {2, 9, 70},
       {16, 9, 5}},
      {"volume",
       "2, 3, 3, 5, 4",
       "16, 3, 2, 3, 2",
       "strides = [1, 2, 1], pads_low = [0, 1, 1], pads_high = [1, 1, 0], dilations = [1, 1, 2]",
       {2, 3, 3, 5, 4},
       {16, 3, 2, 3, 2}},
      {"channels_last",
       "2, 5, 7, 8",
       "24, 8, 3, 3",
       "strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1], "
       "channels_last = true",
       {2, 5, 7, 8},
       {24, 8, 3, 3},
       "2, 5, 7, 24",
       {2, 5, 7, 24}},
      {"one_image",
       "1, 8, 9, 9",
       "16, 8, 3, 3",
       "strides = [1, 1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1]",
       {1, 8, 9, 9},
       {16, 8, 3, 3}},
  };
  return all;
}

std::string input(const char* name, const char* dtype, const std::string& sizes) {
  return std::string("%") + name + ": " + dtype + "[" + sizes + "]";
}
std::string conv_text(const Case& one, const char* more = "") {
  return "  %c = conv(%x, %w) {" + std::string(one.window) + more + "}\n";
}
std::string plain_text(const Case& one, const char* dtype, const char* more = "") {
  return "graph @plain(" + input("x", dtype, one.x) + ", " + input("w", dtype, one.w) + ") {\n" +
         conv_text(one, more) + "  return %c\n}\n";
}
/// relu(conv + bias), and the residual added before where there is one.
std::string followed_text(const Case& one, const char* dtype) {
  const std::string channels = std::to_string(one.w_sizes[0]);
  const bool added = one.residual != nullptr;
  return "graph @followed(" + input("x", dtype, one.x) + ", " + input("w", dtype, one.w) + ", " +
         input("b", dtype, channels) + (added ? ", " + input("r", dtype, one.residual) : "") +
         ") {\n  %c = conv(%x, %w, %b) {" + one.window + "}\n" +
         (added ? "  %a = add(%c, %r)\n  %y = relu(%a)\n" : "  %y = relu(%c)\n") +
         "  return %y\n}\n";
}
/// tanh of a convolution without bias, whose sums are rounded before it.
std::string rounded_text(const Case& one, const char* dtype) {
  return "graph @rounded(" + input("x", dtype, one.x) + ", " + input("w", dtype, one.w) + ") {\n" +
         conv_text(one) + "  %y = tanh(%c)\n  return %y\n}\n";
}
std::vector<Tensor> inputs_of(const Case& one, DType dtype, bool biased) {
  std::vector<Tensor> inputs = {fractions(dtype, one.x_sizes), fractions(dtype, one.w_sizes, 3)};
  if (biased) inputs.push_back(fractions(dtype, {one.w_sizes[0]}, 5));
  if (biased && one.residual != nullptr) inputs.push_back(fractions(dtype, one.residual_sizes, 11));
  return inputs;
}
double tolerance_of(DType dtype) { return dtype == f32 ? 1e-5 : dtype == f16 ? 8e-3 : 4e-2; }

class CudaConvLibrary : public LibraryTest {
 protected:
  CudaConvLibrary() : LibraryTest("HEDDLE_CUDNN_PATH", "cudnn") {}
  void TearDown() override {
    ::unsetenv("HEDDLE_CUDA_SIM_CUDNN_VERSION");
    LibraryTest::TearDown();
  }
};

class CudaConvLibraryCases : public CudaConvLibrary,
                             public ::testing::WithParamInterface<std::size_t> {
 protected:
  const Case& one() const { return cases()[GetParam()]; }
};

/// In f32 of all bits, so that an engine that drops some would be found.
TEST_P(CudaConvLibraryCases, GoStraightToTheirPlace) {
  expect_taken_over(plain_text(one(), "f32"), inputs_of(one(), f32, false), tolerance_of(f32));
  expect_taken_over(plain_text(one(), "f16"), inputs_of(one(), f16, false), tolerance_of(f16));
}

TEST_P(CudaConvLibraryCases, AKernelDoesWhatFollows) {
  expect_taken_over(followed_text(one(), "f32"), inputs_of(one(), f32, true), tolerance_of(f32));
  expect_taken_over(followed_text(one(), "bf16"), inputs_of(one(), bf16, true), tolerance_of(bf16));
  expect_taken_over(rounded_text(one(), "f16"), inputs_of(one(), f16, false), tolerance_of(f16));
}

INSTANTIATE_TEST_SUITE_P(Windows, CudaConvLibraryCases,
                         ::testing::Range(std::size_t{0}, cases().size()),
                         [](const auto& info) { return cases()[info.param].name; });

TEST_F(CudaConvLibrary, Tf32IsTakenWhereItIsAllowed) {
  expect_taken_over(plain_text(cases()[0], "f32", ", tf32 = true"),
                    inputs_of(cases()[0], f32, false), 4e-3);
}

/// Plans are made in the background: a call with other sizes of a class that was measured does not wait for one.
TEST_F(CudaConvLibrary, OtherSizesOfAClassWaitForAPlan) {
  Case one = cases()[0];
  one.x = "s0, 5, 7, 9";
  one.residual = "s0, 19, 7, 9";
  const auto inputs = [&](std::int64_t images) {
    one.x_sizes[0] = one.residual_sizes[0] = images;
    return inputs_of(one, f16, true);
  };
  Engine reference = parse_ir(followed_text(one, "f16"), {.device = Device::reference()});
  control().slow(kOurs, kForAges);
  Engine engine = parse_ir(followed_text(one, "f16"), options());
  const auto expect_right = [&](std::int64_t images) {
    expect_near(engine.run(inputs(images))[0], reference.run(inputs(images))[0], tolerance_of(f16));
  };
  for (const std::int64_t images : {20, 21, 22}) {
    SCOPED_TRACE(images);
    expect_right(images);
    engine.wait_for_specialisations();
    EXPECT_EQ(variant_of(engine, inputs(images)), "cudnn");
    expect_right(images);
    expect_right(images);
  }
  EXPECT_EQ(engine.stats().measurements, 1u);
  EXPECT_GT(engine.stats().graph_launches, 0u);
  const std::uint64_t graphs = engine.stats().graphs;
  for (const std::int64_t images : {20, 21, 22, 20}) expect_right(images);
  EXPECT_EQ(engine.stats().graphs, graphs) << "nodes of the same form take other sizes";
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(CudaConvLibrary, NoneDoesWithout) {
  ::setenv("HEDDLE_CUDNN_PATH", "none", 1);
  control().slow(kOurs, kForAges);
  control().fail(0, 0);
  Engine engine = parse_ir(plain_text(cases()[0], "f16"), options());
  const auto inputs = inputs_of(cases()[0], f16, false);
  engine.run(inputs);
  engine.wait_for_specialisations();
  EXPECT_THAT(variant_of(engine, inputs), HasSubstr("tensor_"));
  EXPECT_EQ(control().calls_of("cudnnCreate"), 0u);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(CudaConvLibrary, ALibraryThatDoesNotLoadIsToldOfOnce) {
  const auto expect_told = [&](const char* why) {
    lines_.clear();
    std::filesystem::remove_all(folder_);
    for (const std::size_t k : {0, 1}) {
      Engine engine = parse_ir(plain_text(cases()[k], "f16"), options());
      const auto inputs = inputs_of(cases()[k], f16, false);
      engine.run(inputs);
      engine.wait_for_specialisations();
      EXPECT_THAT(variant_of(engine, inputs), HasSubstr("tensor_"));
      EXPECT_THAT(lines_, SizeIs(k + 1));
    }
    ASSERT_THAT(lines_, Not(IsEmpty()));
    EXPECT_THAT(lines_[0], StartsWith(std::string("heddle: cuDNN is not used: ") + why));
  };
  ::setenv("HEDDLE_CUDA_SIM_CUDNN_VERSION", "8907", 1);
  expect_told("cuDNN is too old");
  ::setenv("HEDDLE_CUDNN_PATH", "/nonexistent/libcudnn.so", 1);
  expect_told("cuDNN cannot be loaded: expected one of /nonexistent/libcudnn.so, got ");
}

TEST_F(CudaConvLibrary, AVerdictOnDiskIsOfOneVersion) {
  const std::string text = followed_text(cases()[0], "f16");
  const auto inputs = inputs_of(cases()[0], f16, true);
  expect_taken_over(text, inputs, tolerance_of(f16));
  const auto measurements = [&] {
    Engine second = parse_ir(text, options());  // on a device that is opened for it
    EXPECT_NE(variant_of(second, inputs), "cudnn");
    second.run(inputs);
    second.wait_for_specialisations();
    EXPECT_EQ(variant_of(second, inputs), "cudnn");
    EXPECT_EQ(second.stats().kernels_compiled, 0u);
    return second.stats().measurements;
  };
  EXPECT_EQ(measurements(), 0u);
  ::setenv("HEDDLE_CUDA_SIM_CUDNN_VERSION", "92900", 1);
  EXPECT_EQ(measurements(), 1u);
  EXPECT_EQ(measurements(), 0u);
}

TEST_F(CudaConvLibrary, ImagesThatBeginAtOddPlacesAreOurs) {
  const std::string text =
      "graph @odd(%x: f16[2, 8, 9, 12], %w: f16[16, 8, 3, 3]) {\n  %s = slice(%x) {start = [0, 0, "
      "0, 1], limit = [2, 8, 9, 12], stride = [1, 1, 1, 1]}\n  %c = conv(%s, %w) {strides = [1, "
      "1], pads_low = [1, 1], pads_high = [1, 1], dilations = [1, 1]}\n  return %c\n}\n";
  const std::vector<Tensor> inputs = {fractions(f16, {2, 8, 9, 12}),
                                      fractions(f16, {16, 8, 3, 3}, 3)};
  control().slow(kOurs, kForAges);
  control().fail(0, 0);
  Engine reference = parse_ir(text, {.device = Device::reference()});
  Engine engine = parse_ir(text, options());
  for (int repeat = 0; repeat < 2; ++repeat) {
    expect_near(engine.run(inputs)[0], reference.run(inputs)[0], tolerance_of(f16));
    engine.wait_for_specialisations();
  }
  EXPECT_THAT(variant_of(engine, inputs), HasSubstr("tensor_"));
  EXPECT_EQ(control().calls_of("cudnnBackendExecute"), 0u);
}

/// On the machine's own driver, where nobody can say which variant is the fastest: whichever it is, results are right.
TEST(CudaConvLibraryOrOurs, WhatWasMeasuredIsRight) {
  for (const Case& one : std::span(cases()).first(on_simulator() ? 1 : cases().size()))
    for (const DType dtype : {f16, bf16, f32}) {
      SCOPED_TRACE(std::string(one.name) + " of " + std::string(name_of(dtype)));
      const std::string type(name_of(dtype));
      for (const auto& [text, biased] : {std::pair{plain_text(one, type.c_str()), false},
                                         std::pair{followed_text(one, type.c_str()), true}}) {
        EngineOptions options = on_cuda();
        options.autotune = true;
        options.disk_cache = false;
        const auto inputs = inputs_of(one, dtype, biased);
        Engine reference = parse_ir(text, {.device = Device::reference()});
        Engine engine = parse_ir(text, options);
        const Tensor want = reference.run(inputs)[0];
        expect_near(engine.run(inputs)[0], want, tolerance_of(dtype));
        engine.wait_for_specialisations();
        for (int repeat = 0; repeat < 2; ++repeat)
          expect_near(engine.run(inputs)[0], want, tolerance_of(dtype));
      }
    }
}

TEST_F(CudaConvLibrary, AnEngineGivesAllBackWhateverCallFails) {
  expect_all_given_back(followed_text(cases()[0], "f16"), inputs_of(cases()[0], f16, true));
}

/// An engine goes on without the library, in the call that fails too.
TEST_F(CudaConvLibrary, WhateverItsCallsSayResultsAreRight) {
  const Case& one = cases()[1];
  const std::string text = followed_text(one, "f16");
  const auto inputs = inputs_of(one, f16, true);
  Engine reference = parse_ir(text, {.device = Device::reference()});
  const Tensor want = reference.run(inputs)[0];
  control().slow(kOurs, kForAges);
  std::string failed = "any";
  std::set<std::string> tried;
  const auto step = [&] { return is_nightly() ? 1u : failed.starts_with("cudnn") ? 7u : 61u; };
  for (unsigned long n = 1; !failed.empty(); n += step()) {
    SCOPED_TRACE("call " + std::to_string(n));
    std::filesystem::remove_all(folder_);
    lines_.clear();
    Engine engine = parse_ir(text, options());
    control().fail(n, kRefused);
    std::string thrown;
    for (int repeat = 0; repeat < 3; ++repeat) {
      try {
        expect_near(engine.run(inputs)[0], want, tolerance_of(f16));
      } catch (const Error& typed) {
        thrown = typed.what();
      }
      engine.wait_for_specialisations();
    }
    failed = control().failed();
    control().fail(0, 0);
    if (!failed.starts_with("cudnn")) continue;
    tried.insert(failed);
    SCOPED_TRACE(failed);
    EXPECT_EQ(thrown, "");
    expect_near(engine.run(inputs)[0], want, tolerance_of(f16));
    EXPECT_LE(lines_.size(), 1u) << ::testing::PrintToString(lines_);
  }
  EXPECT_THAT(tried, SizeIs(::testing::Ge(3)));
}

}  // namespace
}  // namespace heddle::testing
