// What the tests of engines on the CUDA device share. It is the simulated one, or with HEDDLE_TEST_DEVICE=cuda the
// machine's own; tests that need the simulator's controls then skip themselves.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/half.h"
#include "heddle/custom_op.h"
#include "heddle/heddle.h"
#include "tests/cuda_sim/control.h"
#include "tests/fuzz/environment.h"
#include "tests/support/cuda_driver.h"
#include "tests/support/nightly.h"
#include "tests/support/one_op.h"
#include "tests/support/primary_context.h"

namespace heddle::testing {

using test::kNeedsSimulator;
using test::on_simulator;

using test::is_nightly;

inline Device cuda_device() { return on_simulator() ? Device::cuda_sim() : Device::cuda(); }

/// @throws std::runtime_error on the machine's own driver: ask on_simulator() first.
inline sim::Control& control() {
  if (!on_simulator()) throw std::runtime_error(kNeedsSimulator);
  static sim::Control one(test::simulator_path());
  return one;
}

/// The order in which the simulator runs what streams leave open; the machine's own driver has its own.
inline void interleave(unsigned long seed) {
  if (on_simulator()) control().seed(seed);
}

/// The shape function of a custom op with one result, which is like its first operand.
inline std::vector<TensorType> like_first(const ShapeCall& call) { return {call.tensor(0)}; }

inline EngineOptions on_cuda(int streams = 0, std::optional<bool> graphs = {}) {
  EngineOptions options;
  options.cuda_graphs = graphs;
  options.device = cuda_device();
  options.streams = streams;
  return options;
}

/// Three branches that read what the host sent, and a result that needs them all: kernels that do not
/// fuse into one.
inline std::vector<Tensor> three_branches(const Tensor& x, const Tensor& y, const Tensor& z) {
  const Tensor a = matmul(softmax(matmul(x, y), -1), x);
  const Tensor b = matmul(softmax(matmul(y, z), -1), y);
  const Tensor c = matmul(softmax(matmul(z, x), -1), z);
  return {matmul(matmul(a, b), c), cumsum(b, 0)};
}

/// Small numbers that differ; integers from 0 to 2.
inline Tensor counted(DType dtype, Sizes sizes, int start = 0) {
  Tensor tensor = Tensor::empty(dtype, std::move(sizes));
  const bool floating = is_floating(dtype);
  for (std::int64_t k = 0; k < tensor.count(); ++k) {
    const auto number = static_cast<double>((k * 5 + start) % 17);
    void* at = static_cast<char*>(tensor.data()) + static_cast<std::size_t>(k) * size_of(dtype);
    if (dtype == f32) *static_cast<float*>(at) = static_cast<float>(number / 8 - 1);
    if (dtype == f64) *static_cast<double*>(at) = number / 8 - 1;
    if (!floating) std::memset(at, 0, size_of(dtype));
    if (!floating)
      *static_cast<char*>(at) = static_cast<char>((k + start) % (dtype == boolean ? 2 : 3));
  }
  return tensor;
}

/// `number(k)` as the k-th element, of any floating dtype, on the host.
template <typename F>
Tensor made_of(DType dtype, Sizes sizes, F&& number) {
  Tensor tensor = Tensor::empty(dtype, std::move(sizes));
  for (std::int64_t k = 0; k < tensor.count(); ++k) {
    const double value = number(k);
    if (dtype == f64) static_cast<double*>(tensor.data())[k] = value;
    const auto single = static_cast<float>(value);
    if (dtype == f32) static_cast<float*>(tensor.data())[k] = single;
    auto* const half = static_cast<std::uint16_t*>(tensor.data()) + k;
    if (dtype == f16) *half = base::Half(single).bits;
    if (dtype == bf16) *half = base::BFloat16(single).bits;
  }
  return tensor;
}

inline void expect_near(const Tensor& got, const Tensor& want, double tolerance) {
  ASSERT_EQ(got.dtype(), want.dtype());
  ASSERT_TRUE(std::ranges::equal(got.sizes(), want.sizes()));
  const std::vector<double> a = got.to_doubles();
  const std::vector<double> b = want.to_doubles();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    if (a[i] == b[i]) continue;
    ASSERT_NEAR(a[i], b[i], tolerance * (1 + std::abs(b[i]))) << "element " << i;
  }
}

/// Runs `f` on the CUDA device, twice, and by the evaluator. @return what the device gave.
template <typename F>
std::vector<Tensor> expect_agrees(F f, const std::vector<Tensor>& inputs, double tolerance = 1e-5,
                                  int streams = 0) {
  Engine reference(f, {.device = Device::reference()});
  Engine engine(f, on_cuda(streams));
  const std::vector<Tensor> want = reference.run(inputs);
  std::vector<Tensor> got;
  for (int repeat = 0; repeat < 2; ++repeat) {
    got = engine.run(inputs);
    EXPECT_EQ(got.size(), want.size());
    for (std::size_t k = 0; k < want.size() && k < got.size(); ++k) {
      SCOPED_TRACE("output " + std::to_string(k));
      EXPECT_EQ(got[k].device(), cuda_device());
      expect_near(got[k], want[k], tolerance);
    }
  }
  EXPECT_EQ(engine.stats().evaluator_steps, 0u);
  return got;
}

}  // namespace heddle::testing
