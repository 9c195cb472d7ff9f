// Weights that lie at odd addresses, as in the files of models.
#include <cstring>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "heddle/control_flow.h"
#include "heddle/heddle.h"
#include "tests/support/error_text.h"

namespace hd = heddle;
using testing::ElementsAre;

namespace {

/// Bytes of `values`, one past an aligned address, and how often their owner was told that they may go.
struct OddBytes {
  explicit OddBytes(hd::Tensor like) : values(std::move(like)) {
    const std::size_t size = static_cast<std::size_t>(values.count()) * size_of(values.dtype());
    room.resize(size + 16);
    auto address = reinterpret_cast<std::uintptr_t>(room.data());
    place = room.data() + (16 - address % 16) % 16 + 1;
    if (size != 0) std::memcpy(place, values.data(), size);
  }

  hd::Tensor wrap() {
    const std::span<const std::int64_t> sizes = values.sizes();
    return hd::Tensor::wrap_bytes(place, values.dtype(), hd::Sizes(sizes.begin(), sizes.end()),
                                  [this](void*) { ++released; });
  }

  hd::Tensor values;
  std::vector<char> room;
  char* place = nullptr;
  int released = 0;
};

/// The tensor of `values` and one of the same bytes at an odd address give the same through `make(tensor)`.
template <typename Make>
void expect_same(const hd::Tensor& values, const hd::Tensor& x, Make make) {
  OddBytes odd(values);
  hd::EngineOptions options{.disk_cache = false};
  hd::Engine aligned([&](const hd::Tensor& input) { return make(values, input); }, options);
  hd::Engine unaligned(
      [weights = odd.wrap(), make](const hd::Tensor& input) { return make(weights, input); },
      options);
  const hd::Tensor expected = aligned.run({x})[0];
  const hd::Tensor got = unaligned.run({x})[0];
  ASSERT_EQ(got.count(), expected.count());
  const auto bytes = static_cast<std::size_t>(got.count()) * size_of(got.dtype());
  EXPECT_EQ(std::memcmp(got.data(), expected.data(), bytes), 0);
}

hd::Tensor ramp(hd::DType dtype, hd::Sizes sizes) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(k * 7 % 23) - 11;
  hd::Engine cast([dtype](const hd::Tensor& x) { return hd::cast(x, dtype); });
  return cast.run({hd::Tensor::of<float>(values, std::move(sizes))})[0].clone();
}

TEST(UnalignedWeights, GiveWhatAlignedOnesGive) {
  for (const hd::DType dtype : {hd::f32, hd::f64, hd::f16, hd::bf16, hd::i16, hd::i32, hd::i64}) {
    SCOPED_TRACE(name_of(dtype));
    expect_same(ramp(dtype, {37, 29}), ramp(dtype, {29}),
                [](const hd::Tensor& w, const hd::Tensor& x) { return w * x + w; });
    expect_same(
        ramp(dtype, {5, 9}), ramp(dtype, {1}),
        [](const hd::Tensor& w, const hd::Tensor& x) { return hd::transpose(w, 0, 1) + x; });
    expect_same(
        ramp(dtype, {40, 3}), ramp(hd::i64, {4}).clone(),
        [](const hd::Tensor& w, const hd::Tensor& at) { return hd::gather(w, hd::abs(at), 0); });
  }
}

TEST(UnalignedWeights, OfProductsAndConvolutions) {
  for (const hd::DType dtype : {hd::f32, hd::bf16, hd::f64}) {
    SCOPED_TRACE(name_of(dtype));
    for (const std::int64_t rows : {1, 5, 70})
      expect_same(ramp(dtype, {96, 130}), ramp(dtype, {rows, 96}),
                  [](const hd::Tensor& w, const hd::Tensor& x) { return hd::matmul(x, w); });
    expect_same(ramp(dtype, {130, 96}), ramp(dtype, {5, 96}),
                [](const hd::Tensor& w, const hd::Tensor& x) {
                  return hd::matmul(x, hd::transpose(w, 0, 1));
                });
  }
  expect_same(ramp(hd::f32, {16, 8, 3, 3}), ramp(hd::f32, {1, 8, 14, 14}),
              [](const hd::Tensor& w, const hd::Tensor& x) {
                return hd::conv(x, w, {}, {1, 1}, {1, 1}, {1, 1});
              });
}

TEST(UnalignedWeights, InsideOfRegions) {
  expect_same(ramp(hd::f32, {64, 64}), ramp(hd::f32, {2, 64}),
              [](const hd::Tensor& w, const hd::Tensor& x) {
                return hd::while_loop(
                           std::pair(hd::Tensor::scalar_int(hd::i64, 0), x),
                           [](const auto& state) { return hd::less(state.first, 3); },
                           [w](const auto& state) {
                             return std::pair(state.first + 1,
                                              hd::tanh(hd::matmul(state.second, w)));
                           })
                    .second;
              });
}

TEST(UnalignedWeights, KernelsReadThemWhereTheyAre) {
  OddBytes odd(ramp(hd::f32, {50, 4}));
  hd::Engine engine(
      [table = odd.wrap()](const hd::Tensor& rows) { return hd::gather(table, rows, 0); });
  const std::array<std::int64_t, 1> row{7};
  const hd::Tensor rows = hd::Tensor::of<std::int64_t>(row, {1});
  engine.run({rows});
  const std::array<float, 4> other{1, 2, 3, 4};
  std::memcpy(odd.place + 7 * sizeof other, other.data(), sizeof other);
  EXPECT_THAT(engine.run({rows})[0].to_doubles(), ElementsAre(1, 2, 3, 4));
}

TEST(UnalignedWeights, TellTheirOwnerOnceWhenTheyAreNoLongerRead) {
  OddBytes odd(ramp(hd::f32, {4}));
  {
    const hd::Tensor tensor = odd.wrap();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data()) % sizeof(float), 0u);
    EXPECT_EQ(tensor.to_doubles(), odd.values.to_doubles());
    const hd::Tensor other = tensor;
    EXPECT_EQ(odd.released, 0);
  }
  EXPECT_EQ(odd.released, 1);
}

TEST(UnalignedWeights, AsArgumentsAreAlignedFirst) {
  OddBytes odd(ramp(hd::f32, {1000}));
  hd::Engine engine([](const hd::Tensor& x) { return x * 2; });
  EXPECT_EQ(engine.run({odd.wrap()})[0].to_doubles(), engine.run({odd.values})[0].to_doubles());
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(UnalignedWeights, AreAlignedOnceForManyThreads) {
  OddBytes odd(ramp(hd::f32, {100000}));
  const hd::Tensor tensor = odd.wrap();
  std::array<const void*, 4> seen{};
  {
    std::vector<std::jthread> threads;
    for (const void*& place : seen) threads.emplace_back([&] { place = tensor.data(); });
  }
  for (const void* place : seen) EXPECT_EQ(place, seen[0]);
  EXPECT_EQ(tensor.to_doubles(), odd.values.to_doubles());
}

TEST(UnalignedWeights, AreToBeReadOnly) {
  OddBytes odd(ramp(hd::f32, {8}));
  const std::string got =
      ": expected memory that may be written, got a tensor that is to be read only";
  for (const std::ptrdiff_t past :
       {0, -1}) {  // at an address that suits no f32, and at one that does
    hd::Tensor bytes = hd::Tensor::wrap_bytes(odd.place + past, hd::f32, {8});
    const auto error = [&](auto action) {
      try {
        action();
      } catch (const hd::ArgumentError& raised) {
        return hd::Error::format(
            {raised.parts().what, "", raised.parts().expected, raised.parts().got});
      }
      return std::string("no error");
    };
    EXPECT_EQ(error([&] { bytes.data(); }), "Tensor::data: a pointer to write through" + got);
    EXPECT_EQ(error([&] { bytes.data_as<float>(); }),
              "Tensor::data: a pointer to write through" + got);
    EXPECT_EQ(error([&] { hd::assign(bytes, odd.values); }), "assign: state" + got);
    hd::Engine twice([](const hd::Tensor& x) { return x * 2; });
    hd::Tensor outputs[] = {bytes};
    EXPECT_EQ(error([&] { twice.run_into({{odd.values}}, outputs); }), "run_into: output 0" + got);
    hd::Engine counts([](const hd::Tensor& state, const hd::Tensor& x) {
      hd::assign(state, state + x);
      return x;
    });
    EXPECT_EQ(error([&] { counts.run({bytes, odd.values}); }),
              "run: input input0, which the graph writes to" + got);
    EXPECT_EQ(counts.run({odd.values.clone(), odd.values}).size(), 1u);
    EXPECT_EQ(error([&] { counts.run({bytes, odd.values}); }),
              "run: input input0, which the graph writes to" + got);
    hd::Engine donated([](const hd::Tensor& x) { return x * 2; }, {.donate = {"input0"}});
    EXPECT_EQ(error([&] { donated.run({bytes}); }), "run: input input0, which is donated" + got);
    EXPECT_NE(bytes.data_as<const float>(), nullptr);
    EXPECT_NE(std::as_const(bytes).data(), nullptr);
  }
}

TEST(UnalignedWeights, NegativeSizesAreAnError) {
  const std::array<char, 9> room{};
  EXPECT_EQ(heddle::testing::text_of<hd::ShapeError>(
                [&] { hd::Tensor::wrap_bytes(room.data() + 1, hd::f32, {-2}); }),
            "Tensor::wrap_bytes: sizes: expected >= 0, got [-2]");
}

}  // namespace
