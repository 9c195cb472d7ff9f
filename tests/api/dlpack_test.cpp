// Tensors of other libraries.
#include "heddle/dlpack.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "heddle/error.h"
#include "heddle/heddle.h"
#include "tests/api/dlpack_structs.h"
#include "tests/support/error_text.h"

namespace hd = heddle;
using testing::ElementsAre;

namespace {

using heddle::testing::text_of;

/// A tensor of another library: 2 by 3 floats that lie column by column, after 8 bytes of something else.
struct Foreign {
  float numbers[8] = {-1, -1, 1, 4, 2, 5, 3, 6};
  std::int64_t sizes[2] = {2, 3};
  std::int64_t strides[2] = {1, 2};
  int deleted = 0;
  DLManagedTensorVersioned managed{};

  Foreign() {
    managed.version = {1, 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) {
      ++static_cast<Foreign*>(self->manager_ctx)->deleted;
    };
    managed.dl_tensor = {numbers, {1, 0}, 2, {2, 32, 1}, sizes, strides, 8};
  }
};

TEST(DLPack, SharesTheMemoryUntilTheLastHandleIsGone) {
  Foreign foreign;
  {
    const hd::Tensor tensor = hd::from_dlpack(&foreign.managed);
    EXPECT_EQ(tensor.data(), foreign.numbers + 2);
    EXPECT_THAT(tensor.to_doubles(), ElementsAre(1, 2, 3, 4, 5, 6));
    hd::Engine engine([](const hd::Tensor& x) { return x * 2.0f; });
    EXPECT_THAT(engine.run({tensor})[0].to_doubles(), ElementsAre(2, 4, 6, 8, 10, 12));
    EXPECT_EQ(foreign.deleted, 0);
  }
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(DLPack, WhatIsMarkedReadOnlyIsNotWritten) {
  Foreign foreign;
  foreign.managed.flags = 1;
  hd::Tensor tensor = hd::from_dlpack(&foreign.managed);
  EXPECT_THROW(tensor.data(), hd::ArgumentError);
  EXPECT_EQ(tensor.data_as<const float>(), foreign.numbers + 2);
  DLManagedTensorVersioned* again = hd::to_dlpack(tensor);
  EXPECT_EQ(again->flags, 1u);
  EXPECT_EQ(again->dl_tensor.data, foreign.numbers + 2);
  again->deleter(again);
  DLManagedTensorVersioned* plain = hd::to_dlpack(hd::Tensor::zeros(hd::f32, {2}));
  EXPECT_EQ(plain->flags, 0u);
  plain->deleter(plain);
}

TEST(DLPack, NoStridesMeanRowMajor) {
  Foreign foreign;
  foreign.managed.dl_tensor.strides = nullptr;
  const hd::Tensor tensor = hd::from_dlpack(&foreign.managed);
  EXPECT_TRUE(tensor.is_row_major());
  EXPECT_THAT(tensor.to_doubles(), ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(DLPack, TheStructBefore10Serves) {
  float number = 7;
  int deleted = 0;
  DLManagedTensor managed{};
  managed.dl_tensor = {&number, {1, 0}, 0, {2, 32, 1}, nullptr, nullptr, 0};
  managed.manager_ctx = &deleted;
  managed.deleter = [](DLManagedTensor* self) { ++*static_cast<int*>(self->manager_ctx); };
  EXPECT_EQ(hd::from_dlpack(&managed).item(), 7);
  EXPECT_EQ(deleted, 1);
}

TEST(DLPack, EveryDTypeComesBack) {
  for (const hd::DType dtype : hd::kAllDTypes) {
    const hd::Tensor tensor = hd::Tensor::full(dtype, {2, 3}, 1);
    const hd::Tensor back = hd::from_dlpack(hd::to_dlpack(tensor));
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(back.data(), tensor.data());
    EXPECT_EQ(back.to_doubles(), tensor.to_doubles());
    EXPECT_EQ(hd::from_dlpack(hd::to_dlpack_unversioned(tensor)).dtype(), dtype);
  }
}

TEST(DLPack, AnEmptyTensorHasNoMemory) {
  Foreign foreign;
  foreign.sizes[0] = 0;
  foreign.managed.dl_tensor.data = nullptr;
  foreign.managed.dl_tensor.byte_offset = 0;
  EXPECT_EQ(hd::from_dlpack(&foreign.managed).count(), 0);
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(DLPack, WhatIsRefusedStaysTheCallers) {
  Foreign foreign;
  DLTensor& tensor = foreign.managed.dl_tensor;
  const auto refused = [&]<typename E>(std::type_identity<E>) {
    return text_of<E>([&] { hd::from_dlpack(&foreign.managed); });
  };
  foreign.managed.version = {2, 1};
  EXPECT_EQ(refused(std::type_identity<hd::ArgumentError>()),
            "from_dlpack: version: expected 1.x, got 2.1");
  foreign.managed.version = {1, 3};
  tensor.device = {2, 0};
  EXPECT_EQ(
      refused(std::type_identity<hd::DeviceError>()),
      "from_dlpack: device: expected memory that the host can read (type 1, 3 or 13), got type 2");
  tensor.device = {1, 0};
  tensor.dtype = {5, 64, 1};
  EXPECT_EQ(
      refused(std::type_identity<hd::DTypeError>()),
      "from_dlpack: element type: expected f32, f64, f16, bf16, i8, u8, i16, u16, i32, "
      "u32, i64, u64, bool or an 8-bit float (e4m3fn, e4m3fnuz, e5m2, e5m2fnuz, e8m0fnu) of one "
      "lane, got code 5, 64 bits, 1 lanes");
  tensor.dtype = {2, 32, 1};
  tensor.byte_offset = 2;
  EXPECT_NE(refused(std::type_identity<hd::ArgumentError>()), "no error");
  tensor.byte_offset = 8;
  foreign.strides[0] = -1;
  EXPECT_NE(refused(std::type_identity<hd::ShapeError>()), "no error");
  tensor.ndim = -1;
  EXPECT_EQ(refused(std::type_identity<hd::ShapeError>()),
            "from_dlpack: rank: expected 0 or more, with sizes, got -1");
  EXPECT_EQ(text_of<hd::ArgumentError>(
                [] { hd::from_dlpack(static_cast<DLManagedTensorVersioned*>(nullptr)); }),
            "from_dlpack: tensor: expected an address, got a null pointer");
  EXPECT_EQ(foreign.deleted, 0);
  EXPECT_EQ(text_of<hd::ArgumentError>([] { hd::to_dlpack(hd::Tensor()); }),
            "to_dlpack: expected a tensor, got an empty handle");
}

}  // namespace
