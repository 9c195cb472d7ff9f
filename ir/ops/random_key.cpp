// heddle::random_key: a key for random_uniform and random_normal, another one at each call.
//
//   stream   int; 0: one that the process draws, so that no two processes have the same numbers
//   result   i64[2], a seed and the offset 0
//
// The seed of call k of a stream, counted in a process, is output k of SplitMix64 that starts at the stream.
//
// Memory: the result is fresh. Only on the CPU.
// Source: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
#include <map>
#include <mutex>
#include <random>

#include "ir/ops/host_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> shape_random_key(const CustomShapes&) {
  return {TensorMeta::of(DType::I64, {2})};
}

std::uint64_t mixed(std::uint64_t number) {
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

std::uint64_t first_of(std::int64_t stream) {
  if (stream != 0) return static_cast<std::uint64_t>(stream);
  std::random_device device;
  return std::uint64_t{device()} << 32 | device();
}

/// The next seed of `stream`.
std::int64_t next_seed(std::int64_t stream) {
  static std::mutex mutex;
  static std::map<std::int64_t, std::uint64_t> states;
  const std::lock_guard lock(mutex);
  auto found = states.find(stream);
  if (found == states.end()) found = states.emplace(stream, first_of(stream)).first;
  found->second += 0x9e3779b97f4a7c15;
  return static_cast<std::int64_t>(mixed(found->second));
}

}  // namespace

std::unique_ptr<CustomOp> random_key_op() {
  auto op = std::make_unique<CustomOp>();
  op->schema = parse_op_schema("heddle::random_key(int stream) -> Tensor");
  op->shape = shape_random_key;
  op->cpu = [](const KernelCall& call) {
    auto* key = call.results[0].as<std::int64_t>();
    key[0] = next_seed(call.integer("stream"));
    key[1] = 0;
  };
  op->pure = false;
  return op;
}

}  // namespace heddle::ir::ops
