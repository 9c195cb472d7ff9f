#include "bench/gpu/case.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numbers>
#include <stdexcept>

#include "base/half.h"

namespace heddle::bench::gpu {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  return {std::istreambuf_iterator<char>(file), {}};
}

DType dtype_of(const std::string& name) {
  for (const DType dtype : kAllDTypes)
    if (name_of(dtype) == name) return dtype;
  throw std::runtime_error("case.json: no dtype " + name);
}

/// splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators").
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  /// Mean 0, variance 1: the sum of four 16-bit uniform numbers, so that every machine gives the same bits.
  double normal() {
    const std::uint64_t b = bits();
    const std::uint64_t sum = (b & 0xffff) + (b >> 16 & 0xffff) + (b >> 32 & 0xffff) + (b >> 48);
    return (static_cast<double>(sum) / 65535.0 - 2.0) * std::numbers::sqrt3;
  }

 private:
  std::uint64_t state_;
};

void put(DType dtype, char* at, double value) {
  const auto store = [&](auto number) { std::memcpy(at, &number, sizeof number); };
  switch (dtype) {
    case DType::F32:
      return store(static_cast<float>(value));
    case DType::F16:
      return store(base::Half(static_cast<float>(value)));
    case DType::BF16:
      return store(base::BFloat16(static_cast<float>(value)));
    case DType::I64:
      return store(static_cast<std::int64_t>(value));
    case DType::I32:
      return store(static_cast<std::int32_t>(value));
    case DType::I8:
      return store(static_cast<std::int8_t>(value));
    default:
      throw std::runtime_error("case.json: no input may be " + std::string(name_of(dtype)));
  }
}

double element(const CaseInput& input, Random& random) {
  if (input.kind == "index")
    return static_cast<double>(random.bits() % static_cast<std::uint64_t>(input.scale));
  if (input.kind == "normal") return input.scale * random.normal();
  if (input.kind == "ones") return 1 + 0.1 * random.normal();
  throw std::runtime_error("case.json: no kind " + input.kind);
}

std::string path_of(const Case& one, std::size_t input) {
  return one.folder + "/input" + std::to_string(input) + ".bin";
}

}  // namespace

std::int64_t CaseInput::count() const {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return count;
}

Case read_case(const std::string& folder) {
  const auto document = nlohmann::json::parse(read_text(folder + "/case.json"));
  Case one{folder, read_text(folder + "/graph.hir"), {}, document.at("rotate")};
  for (const auto& input : document.at("inputs"))
    one.inputs.push_back({input.at("name"), dtype_of(input.at("dtype")),
                          input.at("sizes").get<Sizes>(), input.at("kind"), input.at("scale"),
                          input.at("state")});
  return one;
}

void write_inputs(const Case& one) {
  for (std::size_t k = 0; k < one.inputs.size(); ++k) {
    const CaseInput& input = one.inputs[k];
    const std::size_t size = size_of(input.dtype);
    const std::int64_t count = std::min(input.count(), kPeriod);
    std::vector<char> bytes(static_cast<std::size_t>(count) * size);
    Random random(k + 1);
    for (std::int64_t i = 0; i < count; ++i)
      put(input.dtype, bytes.data() + static_cast<std::size_t>(i) * size, element(input, random));
    std::ofstream file(path_of(one, k), std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) throw std::runtime_error(path_of(one, k) + ": cannot be written");
  }
}

std::vector<Tensor> read_inputs(const Case& one) {
  std::vector<Tensor> tensors;
  for (std::size_t k = 0; k < one.inputs.size(); ++k) {
    const CaseInput& input = one.inputs[k];
    const std::string bytes = read_text(path_of(one, k));
    const std::size_t total = static_cast<std::size_t>(input.count()) * size_of(input.dtype);
    if (total != 0 && bytes.empty())
      throw std::runtime_error(path_of(one, k) + ": holds no elements");
    Tensor tensor = Tensor::empty(input.dtype, input.sizes);
    for (std::size_t at = 0; at < total; at += bytes.size())
      std::memcpy(static_cast<char*>(tensor.data()) + at, bytes.data(),
                  std::min(bytes.size(), total - at));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

std::vector<Tensor> read_inputs_to(const Case& one, engine::CudaRuntime& runtime) {
  std::vector<Tensor> tensors;
  for (std::size_t k = 0; k < one.inputs.size(); ++k) {
    const CaseInput& input = one.inputs[k];
    const std::string bytes = read_text(path_of(one, k));
    Tensor tensor = Tensor::empty(input.dtype, input.sizes, runtime.name());
    const std::size_t total = static_cast<std::size_t>(input.count()) * size_of(input.dtype);
    if (total != 0 && bytes.empty())
      throw std::runtime_error(path_of(one, k) + ": holds no elements");
    char* const to = static_cast<char*>(tensor.data());
    std::size_t there = std::min(bytes.size(), total);
    if (there != 0) runtime.copy_in(to, bytes.data(), there);
    for (; there < total; there = std::min(2 * there, total))
      runtime.copy_within(to + there, to, std::min(there, total - there));
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

namespace {

float number_at(const Tensor& tensor, std::int64_t k) {
  const char* at = static_cast<const char*>(tensor.data()) +
                   static_cast<std::size_t>(k) * size_of(tensor.dtype());
  const auto load = [&](auto number) {
    std::memcpy(&number, at, sizeof number);
    return number;
  };
  switch (tensor.dtype()) {
    case DType::F32:
      return load(0.0f);
    case DType::F16:
      return static_cast<float>(load(base::Half()));
    case DType::BF16:
      return static_cast<float>(load(base::BFloat16()));
    case DType::I64:
      return static_cast<float>(load(std::int64_t{}));
    case DType::I32:
      return static_cast<float>(load(std::int32_t{}));
    default:
      throw std::runtime_error("outputs of this dtype are not compared");
  }
}

}  // namespace

void write_samples(const std::string& folder, const std::string& name, const Tensor& tensor) {
  const Tensor host = tensor.to(Device::cpu());
  const std::int64_t count = host.count();
  const std::int64_t samples = std::min(count, kSamples);
  std::vector<float> numbers;
  for (std::int64_t k = 0; k < samples; ++k)
    numbers.push_back(number_at(host, samples == count ? k : k * (count / samples)));
  std::ofstream file(folder + "/" + name + ".f32", std::ios::binary);
  file.write(reinterpret_cast<const char*>(numbers.data()),
             static_cast<std::streamsize>(numbers.size() * sizeof(float)));
  if (!file.flush()) throw std::runtime_error(folder + "/" + name + ".f32: cannot be written");
}

}  // namespace heddle::bench::gpu
