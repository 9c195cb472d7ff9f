// Rows that are read once and gone over again in registers: of all lengths, wherever they begin, and reduced in several ways.
#include <cstring>
#include <gmock/gmock.h>

#include "engine/tensor_impl.h"
#include "tests/cuda/support.h"
#include "tests/cuda/traffic_floors.h"
#include "tests/support/one_op.h"

namespace heddle::testing {
namespace {

Tensor of_dtype(DType dtype, const ir::Sizes& sizes) {
  return engine::from_literal(noise(dtype, sizes, 1));
}

std::vector<Tensor> norms(const Tensor& x, const Tensor& weight) {
  const Tensor centred = x - mean(x, {-1}, true);
  const Tensor squares = mean(centred * centred, {-1}, true);
  return {softmax(x, -1), centred * rsqrt(squares + 1e-5f) * weight + weight};
}

class CudaRowRegisters : public ::testing::TestWithParam<DType> {};

TEST_P(CudaRowRegisters, OfAllLengths) {
  const DType dtype = GetParam();
  const double tolerance = dtype == f32 || dtype == f64 ? 1e-4 : 2e-2;
  for (const std::int64_t columns : {256, 257, 511, 1000, 1024, 2052, 4096, 4100, 12288}) {
    SCOPED_TRACE(columns);
    expect_agrees([](const Tensor& x, const Tensor& weight) { return norms(x, weight); },
                  {of_dtype(dtype, {5, columns}), of_dtype(dtype, {columns})}, tolerance);
  }
}

TEST_P(CudaRowRegisters, OfMemoryThatBeginsAnywhere) {
  const DType dtype = GetParam();
  const double tolerance = dtype == f32 || dtype == f64 ? 1e-4 : 2e-2;
  const auto f = [](const Tensor& x) { return softmax(x, -1); };
  Engine engine(f, on_cuda());
  Engine reference(f, {.device = Device::reference()});
  const Tensor values = of_dtype(dtype, {3200});
  const Tensor memory = values.to(cuda_device());
  for (const std::int64_t offset : {0, 1, 4, 8}) {
    SCOPED_TRACE(offset);
    const Tensor x = engine.wrap_device(static_cast<char*>(const_cast<Tensor&>(memory).data()) +
                                            static_cast<std::size_t>(offset) * size_of(dtype),
                                        dtype, {3, 1024});
    Tensor same = Tensor::empty(dtype, {3, 1024});
    std::memcpy(
        same.data(),
        static_cast<const char*>(values.data()) + static_cast<std::size_t>(offset) * size_of(dtype),
        3072 * size_of(dtype));
    expect_near(engine.run({x})[0], reference.run({same})[0], tolerance);
  }
}

/// A kernel of sizes that are not known: the rows begin where one of them says.
TEST_P(CudaRowRegisters, ThatBeginWhereASizeSays) {
  const DType dtype = GetParam();
  const double tolerance = dtype == f32 || dtype == f64 ? 1e-4 : 2e-2;
  const std::string name(name_of(dtype));
  const std::string text = "graph @rows(%x: " + name + "[3072+s0], %y: " + name +
                           "[s0]) {\n"
                           "  %p = slice(%x) {start = [s0], limit = [3072+s0], stride = [1]}\n"
                           "  %r = reshape(%p) {sizes = [3, 1024]}\n"
                           "  %s = softmax(%r) {axis = 1}\n"
                           "  return %s\n}\n";
  Engine engine = parse_ir(text, on_cuda());
  Engine reference = parse_ir(text, {.device = Device::reference()});
  for (const std::int64_t first : {8, 1, 2, 4, 16, 7}) {
    SCOPED_TRACE(first);
    const std::vector<Tensor> inputs = {of_dtype(dtype, {3072 + first}), of_dtype(dtype, {first})};
    expect_near(engine.run(inputs)[0], reference.run(inputs)[0], tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, CudaRowRegisters, ::testing::Values(f16, bf16, f32, f64),
                         [](const ::testing::TestParamInfo<DType>& info) {
                           return std::string(name_of(info.param));
                         });

class CudaRowRegistersTraffic : public TrafficTest {};
INSTANTIATE_TEST_SUITE_P(Softmax, CudaRowRegistersTraffic, ::testing::Values(std::size_t{0}));

/// Each access is of 16 bytes a lane. The host's compiler may read what it has in registers again, NVRTC does not.
TEST_P(CudaRowRegistersTraffic, MemoryIsMovedSixteenBytesALane) {
  for (const DType dtype : {bf16, f32}) {
    Engine engine([](const Tensor& x) { return softmax(x, -1); }, on_cuda());
    const auto launches = launches_of(engine, {of_dtype(dtype, {8, 4096})});
    ASSERT_EQ(launches.size(), 1u);
    for (const SiteTraffic& site : launches[0].sites) {
      if (site.is_shared()) continue;
      EXPECT_EQ(site.bytes, 8u * 4096u * size_of(dtype)) << site;
      EXPECT_EQ(site.requests, site.bytes / 512) << site;
    }
    EXPECT_LE(launches[0].total(true).bytes, 200000u) << "no row lies in shared memory";
  }
}

}  // namespace
}  // namespace heddle::testing
