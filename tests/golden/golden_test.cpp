// The examples' models give ONNX Runtime's numbers, stored by make_goldens.py.

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <heddle/heddle.h>
#include <heddle/onnx.h>
#include <heddle_test_paths.h>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/file_type/tokens.h"
#include "examples/transformer/encoder.h"

namespace hd = heddle;
namespace fs = std::filesystem;

namespace {

const fs::path kFolder = fs::path(HEDDLE_SOURCE_DIR) / "tests/golden";

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The f32 elements of a version 1.0 .npy file.
std::vector<float> golden(const std::string& name) {
  const std::string bytes = read_file(kFolder / "outputs" / (name + ".npy"));
  const std::size_t start = 10 + static_cast<unsigned char>(bytes.at(8)) +
                            256 * static_cast<std::size_t>(static_cast<unsigned char>(bytes.at(9)));
  std::vector<float> values((bytes.size() - start) / sizeof(float));
  std::memcpy(values.data(), bytes.data() + start, values.size() * sizeof(float));
  return values;
}

void expect_golden(const hd::Tensor& got, const std::string& name) {
  const std::vector<float> want = golden(name);
  ASSERT_EQ(got.count(), static_cast<std::int64_t>(want.size())) << name;
  ASSERT_FALSE(want.empty()) << name;
  const float* values = got.data_as<float>();
  for (std::size_t k = 0; k < want.size(); ++k)
    ASSERT_LE(std::abs(values[k] - want[k]), 1e-6 + 1e-4 * std::abs(want[k]))
        << name << " at " << k << ": got " << values[k] << ", want " << want[k];
}

hd::Tensor ids_of(std::int64_t batch, std::int64_t length, std::int64_t vocabulary) {
  hd::Tensor ids = hd::Tensor::empty(hd::i64, {batch, length});
  for (std::int64_t k = 0; k < batch * length; ++k)
    ids.data_as<std::int64_t>()[k] = (k * 7919 + 13) % vocabulary;
  return ids;
}

/// The wheel's model, where `scripts/fetch_wheel magika` put it; empty when it was not fetched.
fs::path magika_model() {
  const fs::path models = fs::path(HEDDLE_SOURCE_DIR) / ".cache/wheels/magika/magika/models";
  if (!fs::exists(models)) return {};
  for (const auto& entry : fs::recursive_directory_iterator(models)) {
    if (entry.path().filename() == "model.onnx") return entry.path();
  }
  return {};
}

hd::Tensor row_of(const std::string& file) {
  const std::vector<std::int32_t> tokens =
      example::tokens_of(read_file(kFolder / "inputs" / file), {});
  return hd::Tensor::of<std::int32_t>(tokens, {1, static_cast<std::int64_t>(tokens.size())});
}

const char* const kFiles[] = {"empty",     "long.py",   "noise.bin",
                              "page.html", "program.c", "table.csv"};

}  // namespace

TEST(Golden, TheEncoderGivesOnnxRuntimesNumbers) {
  const example::EncoderConfig config;
  hd::Engine engine(example::Encoder{config});
  for (const auto& [batch, length] : {std::pair{1, 1}, {1, 16}, {3, 5}, {2, 33}}) {
    const std::string name = "encoder_" + std::to_string(batch) + "x" + std::to_string(length);
    expect_golden(engine.run({ids_of(batch, length, config.vocabulary)})[0], name);
  }
  EXPECT_EQ(engine.stats().evaluator_steps, 0u);
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(Golden, MagikaGivesOnnxRuntimesNumbers) {
  const fs::path model = magika_model();
  if (model.empty())
    GTEST_SKIP() << "the magika wheel is not there: run scripts/fetch_wheel magika 1.0.3, which "
                    "needs PyPI";
  hd::Engine engine = hd::onnx::load(model.string());
  for (const char* file : kFiles)
    expect_golden(engine.run({row_of(file)})[0], std::string("magika_") + file);
  EXPECT_EQ(engine.stats().evaluator_steps, 0u);
}

TEST(Golden, MagikaGivesTheSameNumbersInABatch) {
  const fs::path model = magika_model();
  if (model.empty())
    GTEST_SKIP() << "the magika wheel is not there: run scripts/fetch_wheel magika 1.0.3, which "
                    "needs PyPI";
  std::vector<std::int32_t> rows;
  std::vector<float> want;
  for (const char* file : kFiles) {
    const std::vector<std::int32_t> row =
        example::tokens_of(read_file(kFolder / "inputs" / file), {});
    rows.insert(rows.end(), row.begin(), row.end());
    const std::vector<float> scores = golden(std::string("magika_") + file);
    want.insert(want.end(), scores.begin(), scores.end());
  }
  const auto batch = static_cast<std::int64_t>(std::size(kFiles));
  hd::Engine engine = hd::onnx::load(model.string());
  const hd::Tensor got = engine.run({hd::Tensor::of<std::int32_t>(
      rows, {batch, static_cast<std::int64_t>(rows.size()) / batch})})[0];
  ASSERT_EQ(got.count(), static_cast<std::int64_t>(want.size()));
  for (std::size_t k = 0; k < want.size(); ++k)
    ASSERT_LE(std::abs(got.data_as<float>()[k] - want[k]), 1e-6 + 1e-4 * std::abs(want[k])) << k;
}
