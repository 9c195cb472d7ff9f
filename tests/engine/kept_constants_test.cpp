// Constants that a later engine finds on disk as the first one prepared them.
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file_place.h"
#include "heddle/heddle.h"
#include "heddle/mapped_file.h"
#include "tests/base/resident.h"
#include "tests/jit/folder_test.h"

namespace hd = heddle;
namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kSize = 600;  // of a side: packed, the matrix takes more than a MiB

hd::Tensor matrix(std::int64_t rows, std::int64_t columns, std::size_t seed) {
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  for (std::size_t k = 0; k < values.size(); ++k)
    values[k] = static_cast<float>((k + seed) * 7 % 23) - 11;
  return hd::Tensor::of<float>(values, {rows, columns});
}

class KeptConstantsTest : public hd::tests::FolderTest {
 protected:
  struct Start {
    std::vector<float> result;
    std::uint64_t found_bytes = 0;
  };
  /// The first call of an engine that multiplies by `weights`, and what it found on disk.
  Start start(const hd::Tensor& weights, std::optional<bool> keep = true) const {
    hd::Engine engine([weights](const hd::Tensor& x) { return hd::matmul(x, weights); },
                      {.cache_dir = folder_, .keep_constants = keep});
    const hd::Tensor result = engine.run({matrix(3, kSize, 1)})[0];
    const auto* values = result.data_as<float>();
    return {{values, values + result.count()}, engine.stats().found_constant_bytes};
  }
  std::vector<std::string> kept() const {
    std::vector<std::string> paths;
    if (!fs::exists(folder_ + "/constants")) return paths;
    for (const auto& entry : fs::directory_iterator(folder_ + "/constants"))
      paths.push_back(entry.path().string());
    return paths;
  }
};

/// To compile what only puts weights into another order would take longer than to do it.
TEST_F(KeptConstantsTest, AnotherOrderTakesNoKernel) {
  const hd::Tensor weights = matrix(kSize, kSize + 1, 0);
  hd::Engine engine([weights](const hd::Tensor& x) { return hd::matmul(x, weights); },
                    {.cache_dir = folder_, .keep_constants = false});
  engine.run({matrix(3, kSize, 1)});
  if (engine.stats().kernels == 0) GTEST_SKIP() << "no code generation";
  EXPECT_EQ(engine.stats().kernels_compiled, 1u);
}

TEST_F(KeptConstantsTest, TheSecondStartFindsThem) {
  const hd::Tensor weights = matrix(kSize, kSize, 0);
  const Start first = start(weights);
  EXPECT_EQ(first.found_bytes, 0u);
  EXPECT_EQ(kept().size(), 1u);
  const Start second = start(weights);
  EXPECT_GE(second.found_bytes, std::uint64_t{kSize * kSize * 4});
  EXPECT_EQ(second.result, first.result);
  EXPECT_EQ(kept().size(), 1u);
}

TEST_F(KeptConstantsTest, OtherWeightsOfTheSameModelAreOthers) {
  const Start first = start(matrix(kSize, kSize, 0));
  hd::Tensor other = matrix(kSize, kSize, 0).clone();
  other.data_as<float>()[kSize * kSize - 1] += 1;
  const Start second = start(other);
  EXPECT_EQ(second.found_bytes, 0u);
  EXPECT_NE(second.result, first.result);
  EXPECT_EQ(kept().size(), 2u);
}

TEST_F(KeptConstantsTest, ABrokenFileIsMadeAnew) {
  const hd::Tensor weights = matrix(kSize, kSize, 0);
  const Start first = start(weights);
  const std::string path = kept().at(0);
  const std::string whole = read(path);
  const auto expect_made_anew = [&](const std::string& content, const char* what) {
    write(path, content);
    const Start again = start(weights);
    EXPECT_EQ(again.found_bytes, 0u) << what;
    EXPECT_EQ(again.result, first.result) << what;
    EXPECT_EQ(read(path), whole) << what;
  };
  std::string changed = whole;
  changed[whole.size() / 2] = static_cast<char>(changed[whole.size() / 2] ^ 1);
  expect_made_anew(changed, "a bit of a weight");
  expect_made_anew(whole.substr(0, whole.size() / 2), "half of it");
  expect_made_anew("", "empty");
  expect_made_anew(std::string(whole.size(), '\0'), "as after a crash");
}

TEST_F(KeptConstantsTest, NoneAreKeptWhereTheOptionOrTheEnvironmentSaysSo) {
  const hd::Tensor weights = matrix(kSize, kSize, 0);
  start(weights, false);
  EXPECT_TRUE(kept().empty());
  ::setenv("HEDDLE_KEEP_CONSTANTS", "0", 1);
  start(weights, std::nullopt);
  EXPECT_TRUE(kept().empty());
  start(weights, true);
  EXPECT_EQ(kept().size(), 1u);
  ::setenv("HEDDLE_KEEP_CONSTANTS", "maybe", 1);
  EXPECT_THROW(start(weights, std::nullopt), hd::OptionError);
  ::unsetenv("HEDDLE_KEEP_CONSTANTS");
}

/// Weights that a library's kernel takes in a layout of its own, with channels scaled and without: two files.
TEST_F(KeptConstantsTest, WeightsOfConvolutionsAreFoundToo) {
  const auto first_call = [&](float scale) {
    hd::Engine engine(
        [weights = matrix(128 * 128, 9, 0),
         factor = hd::Tensor::full(hd::f32, {128, 1, 1}, scale)](const hd::Tensor& x) {
          const hd::Tensor w = hd::reshape(weights, {128, 128, 3, 3});
          return hd::conv(x, w, {}, {1, 1}, {1, 1}, {1, 1}) * factor;
        },
        {.cache_dir = folder_, .keep_constants = true});
    const hd::Tensor result =
        engine.run({hd::reshape(matrix(128, 14 * 14, 1), {1, 128, 14, 14})})[0];
    return std::pair(result.to_doubles(), engine.stats().found_constant_bytes);
  };
  const auto first = first_call(2);
  EXPECT_EQ(first.second, 0u);
  const std::size_t files = kept().size();
  if (files == 0) GTEST_SKIP() << "this build has no library";
  const auto second = first_call(2);
  EXPECT_GT(second.second, 0u);
  EXPECT_EQ(second.first, first.first);
  EXPECT_EQ(kept().size(), files);
  const auto scaled = first_call(4);
  for (std::size_t k = 0; k < first.first.size(); ++k)
    ASSERT_NEAR(scaled.first[k], 2 * first.first[k], 1e-5 * (1 + std::abs(scaled.first[k]))) << k;
}

/// Whether weights in a file have subnormal numbers among them is kept beside them. The program of this test, as numbers, does.
TEST_F(KeptConstantsTest, WhatWeightsInAFileHoldIsKeptToo) {
  std::string reason;
  const auto file = hd::MappedFile::open("/proc/self/exe", reason);
  ASSERT_NE(file, nullptr) << reason;
  constexpr std::int64_t kChannels = 192;
  constexpr std::size_t kBytes = kChannels * kChannels * 9 * sizeof(float);
  if (file->size() < kBytes || hd::base::place_in_file(file->data(), kBytes).empty())
    GTEST_SKIP() << "the tests changed just now or lie on no local disk";
  const auto first_call = [&](const hd::Tensor& weights) {
    hd::Engine engine(
        [&](const hd::Tensor& x) { return hd::conv(x, weights, {}, {1, 1}, {1, 1}, {1, 1}); },
        {.cache_dir = folder_, .keep_constants = true});
    const hd::Tensor result = engine.run({hd::Tensor::full(hd::f32, {1, kChannels, 9, 9}, 1)})[0];
    const auto* bytes = static_cast<const char*>(result.data());
    return std::string(bytes, static_cast<std::size_t>(result.count()) * sizeof(float));
  };
  const hd::Tensor mapped =
      hd::Tensor::wrap(const_cast<char*>(file->data()), hd::f32, {kChannels, kChannels, 3, 3});
  const std::string copied = first_call(mapped.clone());
  const std::size_t files = kept().size();
  if (files == 0) GTEST_SKIP() << "this build has no library";
  for (int k = 0; k < 2; ++k) {
    EXPECT_EQ(first_call(mapped), copied);
    EXPECT_EQ(kept().size(), 2 * files + 1);
  }
}

/// Nobody reads weights in a file once they are packed: their pages leave memory, whether a start packs them or finds them packed.
TEST_F(KeptConstantsTest, WeightsOfAFileLeaveMemoryOncePacked) {
  constexpr std::size_t kBytes = kSize * kSize * sizeof(float);
  const hd::Tensor weights = matrix(kSize, kSize, 0);
  const std::string path = folder_ + ".weights";
  write(path, std::string(static_cast<const char*>(weights.data()), kBytes));
  std::string reason;
  const auto file = hd::MappedFile::open(path, reason);
  ASSERT_NE(file, nullptr) << reason;
  const auto expect_left = [&](const auto& first_call) {
    EXPECT_EQ(std::string(file->data(), kBytes),
              std::string(static_cast<const char*>(weights.data()), kBytes));
    EXPECT_GE(hd::tests::resident_bytes(file->data()), kBytes);
    first_call();
    EXPECT_LE(hd::tests::resident_bytes(file->data()), kBytes / 8);
  };
  const hd::Tensor mapped = hd::Tensor::wrap_bytes(file->data(), hd::f32, {kSize, kSize});
  const std::vector<float> expected = start(weights, false).result;
  for (const bool keep : {false, true, true})
    expect_left([&] { EXPECT_EQ(start(mapped, keep).result, expected); });
  // Those of a library's kernel, too.
  const hd::Tensor taps = hd::Tensor::wrap_bytes(file->data(), hd::f32, {200, 200, 3, 3});
  const auto convolved = [&](const hd::Tensor& w) {
    hd::Engine engine(
        [&](const hd::Tensor& x) { return hd::conv(x, w, {}, {1, 1}, {1, 1}, {1, 1}); },
        {.cache_dir = folder_, .keep_constants = true});
    return engine.run({hd::Tensor::full(hd::f32, {1, 200, 9, 9}, 1)})[0].to_doubles();
  };
  const std::vector<double> expected_taps = convolved(taps.clone());
  for (int k = 0; k < 2; ++k) expect_left([&] { EXPECT_EQ(convolved(taps), expected_taps); });
  fs::remove(path);
}

TEST_F(KeptConstantsTest, SmallOnesAreNotKept) {
  hd::Engine engine([w = matrix(64, 64, 0)](const hd::Tensor& x) { return hd::matmul(x, w); },
                    {.cache_dir = folder_});
  engine.run({matrix(3, 64, 1)});
  EXPECT_TRUE(kept().empty());
}

TEST_F(KeptConstantsTest, AFolderThatCannotBeWrittenIsSilent) {
  fs::create_directories(folder_);
  write(folder_ + "/constants", "a file, not a folder");
  const hd::Tensor weights = matrix(kSize, kSize, 0);
  const Start first = start(weights);
  const Start second = start(weights);
  EXPECT_EQ(second.found_bytes, 0u);
  EXPECT_EQ(second.result, first.result);
}

TEST_F(KeptConstantsTest, NewValuesOfParametersAreNotKept) {
  const hd::Tensor weights = matrix(kSize, kSize, 0);
  {
    hd::Engine engine([weights](const hd::Tensor& x) { return hd::matmul(x, weights); },
                      {.cache_dir = folder_});
    engine.run({matrix(3, kSize, 1)});
    engine.update_parameters({{engine.parameters().at(0).name, matrix(kSize, kSize, 5)}});
    engine.run({matrix(3, kSize, 1)});
  }
  EXPECT_EQ(kept().size(), 1u);
}

}  // namespace
