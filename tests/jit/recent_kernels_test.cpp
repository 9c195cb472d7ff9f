// Which kernels are kept for whoever asks for the same.
#include "jit/recent_kernels.h"

#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <vector>

namespace heddle::jit {
namespace {

using Kernels = RecentKernels<int>;
using Pointer = Kernels::Pointer;

Pointer make(Kernels& kernels, int number) {
  std::promise<Pointer> promise;
  const auto found = kernels.find_or_add(std::to_string(number), promise);
  if (found.is_new) promise.set_value(std::make_shared<const int>(number));
  return found.kernel.get();
}

bool has(Kernels& kernels, int number) {
  std::promise<Pointer> promise;
  const std::string key = std::to_string(number);
  const bool is_new = kernels.find_or_add(key, promise).is_new;
  if (is_new) kernels.forget(key);
  return !is_new;
}

TEST(RecentKernels, IdleOnesAreDroppedAndThoseInUseAreNot) {
  Kernels kernels(10);
  std::vector<Pointer> used;
  for (int k = 0; k < 200; ++k) {
    const Pointer made = make(kernels, k);
    if (k % 4 == 0) used.push_back(made);
    EXPECT_LE(kernels.size(), used.size() + 2 * 10 + 1);
  }
  for (const Pointer& kernel : used) EXPECT_EQ(make(kernels, *kernel), kernel);
  EXPECT_FALSE(has(kernels, 1));
  EXPECT_TRUE(has(kernels, 199));
}

TEST(RecentKernels, ThoseAskedForLastStay) {
  Kernels kernels(3);
  for (int k = 0; k < 50; ++k) {
    make(kernels, k);
    make(kernels, 0);
  }
  EXPECT_TRUE(has(kernels, 0));
}

TEST(RecentKernels, OnesBeingMadeAndFailedOnesAreNoMatter) {
  Kernels kernels(1);
  std::promise<Pointer> pending;
  const auto waited = kernels.find_or_add("pending", pending);
  std::promise<Pointer> failed;
  kernels.find_or_add("failed", failed);
  failed.set_exception(std::make_exception_ptr(std::runtime_error("no")));
  for (int k = 0; k < 20; ++k) make(kernels, k);
  std::promise<Pointer> other;
  EXPECT_FALSE(kernels.find_or_add("pending", other).is_new);
  kernels.forget("failed");
  kernels.forget("failed");
  EXPECT_TRUE(kernels.find_or_add("failed", other).is_new);
  pending.set_value(std::make_shared<const int>(7));
  EXPECT_EQ(*waited.kernel.get(), 7);
}

}  // namespace
}  // namespace heddle::jit
