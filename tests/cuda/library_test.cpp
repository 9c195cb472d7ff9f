// Products by cuBLASLt, which the simulator brings too: measured in the background, taken by plans, captured into graphs.
#include <gmock/gmock.h>

#include "tests/cuda/library_support.h"

namespace heddle::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

Tensor plain_product(const Tensor& x, const Tensor& w) { return matmul(x, w); }
Tensor product_and_more(const Tensor& x, const Tensor& w) { return gelu(matmul(x, w)) * 0.5f; }
Tensor product_of_transposed(const Tensor& x, const Tensor& w) {
  return matmul(x, permute(w, {1, 0}));
}

class CudaLibrary : public LibraryTest {
 protected:
  CudaLibrary() : LibraryTest("HEDDLE_CUBLASLT_PATH", "cublaslt") {}
};

TEST_F(CudaLibrary, TakesTheProductsThatItIsFasterAt) {
  for (const DType dtype : {f16, bf16}) {
    SCOPED_TRACE(std::string(name_of(dtype)));
    expect_taken_over(plain_product, {fractions(dtype, {48, 64}), fractions(dtype, {64, 80}, 3)},
                      2e-2);
  }
  expect_taken_over(plain_product, {fractions(f32, {48, 64}), fractions(f32, {64, 80}, 3)}, 1e-5);
}

/// 4097 is no f16: rounded to it in the middle, the sums would be 0.
TEST_F(CudaLibrary, PartsOfASumAreAddedUpInF32) {
  const Tensor x = Tensor::full(f16, {16, 128}, 1);
  Tensor w = Tensor::full(f16, {128, 16}, 0);
  const auto set = [&](std::int64_t row, float value) {
    for (std::int64_t column = 0; column < 16; ++column)
      static_cast<std::uint16_t*>(w.data())[row * 16 + column] = base::Half(value).bits;
  };
  set(0, 4096);
  set(1, 1);
  set(127, -4096);
  expect_taken_over(plain_product, {x, w}, 0);
}

TEST_F(CudaLibrary, AKernelDoesWhatFollowsTheProduct) {
  for (const DType dtype : {f16, bf16}) {
    SCOPED_TRACE(std::string(name_of(dtype)));
    expect_taken_over(product_and_more, {fractions(dtype, {48, 64}), fractions(dtype, {64, 80}, 3)},
                      2e-2);
  }
}

TEST_F(CudaLibrary, OperandsMayHaveNeighboursInColumnsAndBeBatches) {
  expect_taken_over(product_of_transposed, {fractions(f16, {48, 64}), fractions(f16, {80, 64}, 3)},
                    4e-3);
  expect_taken_over(plain_product, {fractions(f16, {3, 48, 64}), fractions(f16, {3, 64, 80}, 3)},
                    4e-3);
  // One right matrix for all.
  expect_taken_over(plain_product, {fractions(f16, {3, 48, 64}), fractions(f16, {64, 80}, 3)},
                    4e-3);
  expect_taken_over(product_and_more, {fractions(f16, {3, 48, 64}), fractions(f16, {3, 64, 80}, 3)},
                    4e-3);
}

/// The simulator's library queues one operation for products of less than 128, two from there on.
TEST_F(CudaLibrary, AGraphIsMadeAnewWhereTheLibraryQueuesSomethingElse) {
  control().slow(kOurs, kForAges);
  Engine reference(product_and_more, {.device = Device::reference()});
  Engine engine(product_and_more, options());
  const auto inputs = [](std::int64_t rows, std::int64_t depth) {
    return std::vector<Tensor>{fractions(f16, {rows, depth}), fractions(f16, {depth, 80}, 3)};
  };
  const auto expect_right = [&](std::int64_t rows, std::int64_t depth) {
    expect_near(engine.run(inputs(rows, depth))[0], reference.run(inputs(rows, depth))[0], 8e-3);
  };
  for (const std::int64_t depth : {64, 96, 192}) {
    expect_right(48, depth);
    engine.wait_for_specialisations();
    expect_right(48, depth);
    EXPECT_EQ(variant_of(engine, inputs(48, depth)), "cublaslt");
  }
  expect_right(48, 192);
  const EngineStats before = engine.stats();
  expect_right(47, 192);  // of one class, so nothing is measured
  expect_right(48, 192);
  EXPECT_EQ(engine.stats().graphs, before.graphs);
  EXPECT_GE(engine.stats().graph_updates, before.graph_updates + 2);
  expect_right(48, 96);
  EXPECT_EQ(engine.stats().graphs, before.graphs + 1);
  EXPECT_EQ(engine.stats().measurements, 3u);
}

/// In its first call a library loads its code, which may take longer than all our kernels together.
TEST_F(CudaLibrary, TheFirstCallIsNotWhatCounts) {
  const std::vector<Tensor> inputs = {fractions(f16, {48, 64}), fractions(f16, {64, 80}, 3)};
  constexpr double kOfOurs = 1e4, kOfTheFirst = 1e7;  // ms, far above what the simulator takes
  control().slow(kOurs, kOfOurs);
  control().slow_once("heddle_sim_cublaslt", kOfTheFirst);
  Engine engine(plain_product, options());
  engine.run(inputs);
  engine.wait_for_specialisations();
  EXPECT_EQ(variant_of(engine, inputs), "cublaslt");
}

TEST_F(CudaLibrary, OperandsThatBeginAtOddPlacesAreOurs) {
  const auto from_the_second_column = [](const Tensor& x, const Tensor& w) {
    return matmul(slice(x, 1, 1, 65), w);
  };
  const std::vector<Tensor> inputs = {fractions(f16, {48, 72}), fractions(f16, {64, 80}, 3)};
  Engine reference(from_the_second_column, {.device = Device::reference()});
  control().fail(0, 0);
  Engine engine(from_the_second_column, options());
  for (int repeat = 0; repeat < 2; ++repeat) {
    expect_near(engine.run(inputs)[0], reference.run(inputs)[0], 4e-3);
    engine.wait_for_specialisations();
  }
  EXPECT_NE(variant_of(engine, inputs), "cublaslt");
  EXPECT_EQ(control().calls_of("cublasLtMatmul"), 0u);
}

TEST_F(CudaLibrary, AddressesThatItDoesNotTakeAreOurs) {
  const Tensor x = fractions(f16, {48, 64}, 7);  // those of `shifted` from the second on
  const Tensor w = fractions(f16, {64, 80}, 3);
  expect_taken_over(plain_product, {x, w}, 4e-3);
  Engine reference(plain_product, {.device = Device::reference()});
  Engine engine(plain_product, options());
  engine.run({x, w});
  engine.wait_for_specialisations();
  const Tensor shifted = fractions(f16, {48 * 64 + 1}).to(cuda_device());
  const Tensor odd =
      engine.wrap_device(static_cast<char*>(const_cast<void*>(shifted.data())) + 2, f16, {48, 64});
  control().fail(0, 0);
  expect_near(engine.run({odd, w})[0], reference.run({x, w})[0], 4e-3);
  EXPECT_EQ(variant_of(engine, {odd, w}), "cublaslt");
  EXPECT_EQ(control().calls_of("cublasLtMatmul"), 0u);
  expect_near(engine.run({x, w})[0], reference.run({x, w})[0], 4e-3);
}

/// On the machine's own driver, where nobody can say which variant is the fastest: whichever it is, results are right.
TEST(CudaLibraryOrOurs, WhatWasMeasuredIsRight) {
  std::size_t turn = 0;
  for (const DType dtype : {f16, bf16, f32})
    for (const std::int64_t rows :
         test::few_by_day<std::int64_t>({1, 64, on_simulator() ? 80 : 1024}, 3, turn++)) {
      SCOPED_TRACE(std::string(name_of(dtype)) + ", rows " + std::to_string(rows));
      const std::vector<Tensor> inputs = {fractions(dtype, {rows, 256}),
                                          fractions(dtype, {256, 128}, 3)};
      for (const auto& f : {plain_product, product_and_more}) {
        EngineOptions options = on_cuda();
        options.autotune = true;
        options.disk_cache = false;
        Engine reference(f, {.device = Device::reference()});
        Engine engine(f, options);
        const Tensor want = reference.run(inputs)[0];
        const double tolerance = dtype == f32 ? 1e-4 : dtype == f16 ? 4e-3 : 3e-2;
        expect_near(engine.run(inputs)[0], want, tolerance);
        engine.wait_for_specialisations();
        for (int repeat = 0; repeat < 2; ++repeat)
          expect_near(engine.run(inputs)[0], want, tolerance);
        EXPECT_EQ(engine.stats().measurements, 1u);
      }
    }
}

TEST_F(CudaLibrary, ALibraryThatDoesNotLoadIsToldOfOnce) {
  ::setenv("HEDDLE_CUBLASLT_PATH", "/nonexistent/libcublasLt.so", 1);
  Engine engine(plain_product, options());
  for (const std::int64_t rows : {48, 96}) {
    const std::vector<Tensor> inputs = {fractions(f16, {rows, 64}), fractions(f16, {64, 80}, 3)};
    engine.run(inputs);
    engine.wait_for_specialisations();
    EXPECT_NE(variant_of(engine, inputs), "cublaslt");
  }
  EXPECT_EQ(engine.stats().measurements, 2u);
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0], HasSubstr("heddle: cuBLASLt is not used: cuBLASLt cannot be loaded: "
                                   "expected one of /nonexistent/libcublasLt.so, got "));
}

TEST_F(CudaLibrary, AVerdictOnDiskWaitsUntilTheLibraryIsOpen) {
  const std::vector<Tensor> inputs = {fractions(f16, {48, 64}), fractions(f16, {64, 80}, 3)};
  expect_taken_over(plain_product, inputs, 4e-3);
  Engine second(plain_product, options());  // on a device that is opened for it
  EXPECT_NE(variant_of(second, inputs), "cublaslt");
  second.run(inputs);
  second.wait_for_specialisations();
  EXPECT_EQ(variant_of(second, inputs), "cublaslt");
  EXPECT_EQ(second.stats().measurements, 0u);
  EXPECT_EQ(second.stats().kernels_compiled, 0u);
}

TEST_F(CudaLibrary, ProductsInLoopsAreItsToo) {
  const auto power = [](const Tensor& x, const Tensor& w) {
    return while_loop(
        std::vector<Tensor>{x, Tensor::scalar(i64, 0)},
        [](const std::vector<Tensor>& s) { return less(s[1], Tensor::scalar(i64, 3)); },
        [w](const std::vector<Tensor>& s) {
          return std::vector<Tensor>{matmul(s[0], w) * 0.1f, s[1] + Tensor::scalar(i64, 1)};
        })[0];
  };
  const std::vector<Tensor> inputs = {fractions(f16, {48, 64}), fractions(f16, {64, 64}, 3)};
  Engine reference(power, {.device = Device::reference()});
  control().slow(kOurs, kForAges);
  Engine engine(power, options());
  engine.run(inputs);
  engine.wait_for_specialisations();
  EXPECT_THAT(engine.plan_json(inputs), HasSubstr("\"variant\": \"cublaslt\""));
  expect_near(engine.run(inputs)[0], reference.run(inputs)[0], 1e-2);
}

TEST_F(CudaLibrary, AnEngineGivesAllBackWhateverCallFails) {
  expect_all_given_back(product_and_more, {fractions(f16, {34, 64}), fractions(f16, {64, 80}, 3)});
}

}  // namespace
}  // namespace heddle::testing
