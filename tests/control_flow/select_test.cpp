// nonzero, compress and as_size: sizes that the elements say.
#include <gmock/gmock.h>
#include <limits>

#include "ir/custom_op.h"
#include "tests/control_flow/support.h"

namespace heddle::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr DType kDTypes[] = {f32, f64, f16, bf16, i8, u8, i16, i32, i64, boolean, u16, u32, u64};

/// 0 at every third place, else 1, by number of the element.
Tensor thirds(DType dtype, const Sizes& sizes) {
  const Tensor at = iota({Tensor::zeros(u8, sizes).count()}, 0, i64);
  std::vector<SymInt> shape(sizes.begin(), sizes.end());
  return reshape(cast(not_equal(mod(at, 3), 0), dtype), shape);
}

/// The indices, dimension by dimension, of the elements that `keeps` by their row-major position.
template <typename F>
std::vector<double> indices(const Sizes& sizes, F keeps) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  std::vector<double> all;
  std::int64_t inner = count;
  for (const std::int64_t size : sizes) {
    inner /= std::max<std::int64_t>(size, 1);
    for (std::int64_t at = 0; at < count; ++at)
      if (keeps(at)) all.push_back(static_cast<double>(at / inner % size));
  }
  return all;
}

TEST(NonZero, OfEachDTypeAndShape) {
  for (const DType dtype : kDTypes) {
    for (const Sizes& sizes : {Sizes{7}, {1}, {0}, {2, 0}, {3, 4}, {1, 5, 1}, {2, 3, 4}, {300}}) {
      SCOPED_TRACE(std::string(name_of(dtype)) + " of rank " + std::to_string(sizes.size()));
      const Tensor got =
          everywhere([](const Tensor& x) { return nonzero(x); }, {thirds(dtype, sizes)})[0];
      EXPECT_EQ(got.dtype(), i64);
      EXPECT_EQ(got.sizes()[0], static_cast<std::int64_t>(sizes.size()));
      EXPECT_EQ(got.to_doubles(), indices(sizes, [](std::int64_t at) { return at % 3 != 0; }));
    }
  }
}

TEST(NonZero, OfAScalarTellsOnlyHowMany) {
  const auto f = [](const Tensor& x) { return nonzero(x); };
  EXPECT_THAT(everywhere(f, {Tensor::scalar(f32, 2)})[0].sizes(), ElementsAre(0, 1));
  EXPECT_THAT(everywhere(f, {Tensor::scalar(f32, 0)})[0].sizes(), ElementsAre(0, 0));
}

TEST(NonZero, ANaNIsNotZeroAndMinusZeroIs) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto f = [](const Tensor& x) { return nonzero(x); };
  EXPECT_THAT(everywhere(f, {numbers({nan, -0.0f, 1e-45f, 0})})[0].to_doubles(), ElementsAre(0, 2));
}

TEST(NonZero, ReadsOperandsThroughTheirStrides) {
  const Tensor x = Tensor::of<float>({1, 0, 0, 2, 3, 0}, {2, 3});
  const auto turned = [](const Tensor& y) { return nonzero(transpose(y, 0, 1)); };
  EXPECT_THAT(everywhere(turned, {x})[0].to_doubles(), ElementsAre(0, 0, 1, 0, 1, 1));
  const Tensor strided =
      Tensor::wrap_strided(const_cast<float*>(x.data_as<const float>()), f32, {3, 2}, {1, 3});
  const auto plain = [](const Tensor& y) { return nonzero(y); };
  EXPECT_THAT(everywhere(plain, {strided})[0].to_doubles(), ElementsAre(0, 0, 1, 0, 1, 1));
}

TEST(NonZero, IsCompiledOnceForAllCounts) {
  Engine engine([](const Tensor& x) { return nonzero(x); });
  for (const std::int64_t count : {5, 6, 40, 0, 1})
    EXPECT_THAT(engine.run({Tensor::full(f32, {count}, 1)})[0].sizes(), ElementsAre(1, count));
  EXPECT_EQ(engine.stats().compiles, 1u);
  EXPECT_EQ(engine.stats().evaluator_steps, 0u);
}

TEST(NonZero, RunsAtOnceOutsideOfATrace) {
  EXPECT_THAT(nonzero(numbers({0, 3, 0, 4})).to_doubles(), ElementsAre(1, 3));
  EXPECT_THAT(compress(numbers({7, 8, 9}), numbers({1, 0, 1})).to_doubles(), ElementsAre(7, 9));
}

TEST(Compress, OfEachDTypeAndAxis) {
  for (const DType dtype : kDTypes) {
    for (const std::int64_t axis : {0, 1, -1}) {
      const auto f = [axis](const Tensor& x, const Tensor& c) { return compress(x, c, axis); };
      const Tensor x = cast(reshape(iota({12}, 0, i64), {3, 4}), dtype);
      const Tensor condition = axis == 0 ? Tensor::of<bool>({false, true, true}, {3})
                                         : Tensor::of<bool>({true, false, false, true}, {4});
      const Tensor got = everywhere(f, {x, condition})[0];
      EXPECT_EQ(got.dtype(), dtype);
      EXPECT_THAT(got.sizes(), axis == 0 ? ElementsAre(2, 4) : ElementsAre(3, 2));
      if (dtype != boolean && axis != 0) {
        EXPECT_THAT(got.to_doubles(), ElementsAre(0, 3, 4, 7, 8, 11));
      }
    }
  }
}

TEST(Compress, KeepsNothingWhereNothingHolds) {
  const auto f = [](const Tensor& x, const Tensor& c) { return compress(x, c); };
  EXPECT_THAT(everywhere(f, {ramp({3, 2}), numbers({0, 0, 0})})[0].sizes(), ElementsAre(0, 2));
}

TEST(AsSize, MakesTensorsOfTheSizeThatATensorHolds) {
  const auto f = [](const Tensor& x) {
    const SymInt count = as_size(sum(cast(x, i64)));
    return std::pair(iota({count}, 0, f32) * 0.5f, expand(Tensor::scalar(f32, 3), {2, count}));
  };
  const std::vector<Tensor> got = everywhere(f, {numbers({1, 2})});
  EXPECT_THAT(got[0].to_doubles(), ElementsAre(0, 0.5, 1));
  EXPECT_THAT(got[1].sizes(), ElementsAre(2, 3));
  EXPECT_THAT(everywhere(f, {numbers({0, 0})})[0].to_doubles(), IsEmpty());
  EXPECT_EQ(as_size(Tensor::scalar_int(i64, 5)).value(), 5);
}

TEST(AsSize, C1IsOneI64) {
  const auto refused = [](const Tensor& number) {
    return unplaced_text_of<DTypeError>(
        [&] { Engine([](const Tensor& x) { return iota({as_size(x)}); }).run({number}); });
  };
  EXPECT_EQ(refused(Tensor::scalar(f32, 2)),
            "heddle::as_size: C1 number: expected i64[], got f32[]");
  EXPECT_EQ(refused(Tensor::zeros(i64, {1})),
            "heddle::as_size: C1 number: expected i64[], got i64[1]");
}

TEST(AsSize, C2IsNotBelowZero) {
  const auto f = [](const Tensor& x) { return iota({as_size(sum(cast(x, i64)))}); };
  for (const Device device : {Device::cpu(), Device::reference()}) {
    Engine engine(f, {.device = device});
    EXPECT_EQ(unplaced_text_of<ShapeError>([&] { engine.run({numbers({1, -4})}); }),
              "heddle::as_size: sizes of the results: expected [u0, 0] of result 0, got [-3, 0]");
    EXPECT_THAT(engine.run({numbers({1, 1})})[0].sizes(), ElementsAre(2)) << "usable still";
  }
}

TEST(AsSize, IsAnOpOfTextToo) {
  const std::string text = R"(graph @main(%n: i64[]) {
  %size = heddle::as_size(%n) : u8[u0, 0]
  %out = iota() {sizes = [u0], axis = 0}
  return %out
}
)";
  EXPECT_EQ(ir::print(ir::parse(text)), text);
  EXPECT_THAT(parse_ir(text).run({Tensor::scalar_int(i64, 3)})[0].to_doubles(),
              ElementsAre(0, 1, 2));
}

// The sweep has a row for each op that is none of these.
TEST(HostOps, AreTheseAndHaveTestsOfTheirOwn) {
  std::vector<std::string_view> names;
  for (const std::string_view name : ir::custom_op_names())
    if (name.starts_with("heddle::")) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("heddle::as_size",              // above
                                 "heddle::bit_cast",             // tests/onnx/bit_cast_test.cpp
                                 "heddle::non_max_suppression",  // tests/onnx/select_test.cpp
                                 "heddle::random_key"));         // tests/onnx/random_test.cpp
}

}  // namespace
}  // namespace heddle::testing
