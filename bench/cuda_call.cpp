// Makes a cached call on CUDA again and again, on a stream of the caller's with tensors on the device and a driver that does
// nothing (idle_driver.cpp): for scripts/count_instructions, which counts what a call costs the host, driver apart. It prints how
// long a call takes and which functions of the driver it calls.
//
// usage: cuda_call CASE CALLS          (cuda_call --list)
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/chosen_case.h"

#include "heddle/heddle.h"

namespace hd = heddle;

namespace {

class Driver {
 public:
  Driver() {
    load(retain_, "cuDevicePrimaryCtxRetain");
    load(push_, "cuCtxPushCurrent_v2");
    load(make_stream_, "cuStreamCreate");
    load(synchronize_, "cuCtxSynchronize");
    load(idle_, "heddle_idle_driver");
    load(called_, "heddle_idle_driver_called");
    void* context = nullptr;
    if (retain_(&context, 0) != 0 || push_(context) != 0 || make_stream_(&stream_, 1) != 0)
      throw std::runtime_error("no stream");
  }
  void* stream() const { return stream_; }
  void synchronize() const { synchronize_(); }
  void idle(bool on) const { idle_(on ? 1 : 0); }
  std::string called() const { return called_(); }

 private:
  template <typename Function>
  void load(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library_, name));
    if (function == nullptr) throw std::runtime_error(std::string("no ") + name);
  }

  void* library_ = ::dlopen(HEDDLE_IDLE_DRIVER_PATH, RTLD_NOW);
  int (*retain_)(void**, int) = nullptr;
  int (*push_)(void*) = nullptr;
  int (*make_stream_)(void**, unsigned int) = nullptr;
  int (*synchronize_)() = nullptr;
  void (*idle_)(int) = nullptr;
  const char* (*called_)() = nullptr;
  void* stream_ = nullptr;
};

hd::Tensor ones(hd::Sizes sizes) {
  return hd::Tensor::full(hd::f32, std::move(sizes), 1).to(hd::Device::cuda_sim());
}

/// Calls before those that count: several on each context, and so that tensors of earlier calls are given back.
constexpr int kCallsBefore = 24;

template <typename Call>
void repeat(const Driver& driver, int calls, Call&& call) {
  for (int k = 0; k < kCallsBefore; ++k) {
    call();
    driver.synchronize();
  }
  driver.idle(true);
  const auto start = std::chrono::steady_clock::now();
  hd::bench::counted_calls(calls, [&](int) { call(); });
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
  std::cout << "ns " << took.count() / calls << '\n' << driver.called();
  driver.idle(false);
}

template <typename Callable>
hd::Engine engine_of(const Driver& driver, Callable&& callable) {
  hd::EngineOptions options;
  options.device = hd::Device::cuda_sim();
  options.stream = driver.stream();
  return hd::Engine(std::forward<Callable>(callable), options);
}

template <typename Callable>
void run(const Driver& driver, Callable&& callable, const std::vector<hd::Tensor>& inputs,
         int calls) {
  hd::Engine engine = engine_of(driver, callable);
  repeat(driver, calls, [&] { engine.run(inputs); });
}

template <typename Callable>
void run_into(const Driver& driver, Callable&& callable, const std::vector<hd::Tensor>& inputs,
              int calls) {
  hd::Engine engine = engine_of(driver, callable);
  std::vector<hd::Tensor> outputs = engine.run(inputs);
  repeat(driver, calls, [&] { engine.run_into(inputs, outputs); });
}

hd::Tensor one_kernel(const hd::Tensor& x) { return x * 2.0f; }

constexpr std::int64_t kRows = 8, kWidth = 16, kHeads = 2;

/// x, then the weights of a layer.
std::vector<hd::Tensor> layer_inputs() {
  return {ones({1, kRows, kWidth}),
          ones({kWidth, kWidth}),
          ones({kWidth, kWidth}),
          ones({kWidth, kWidth}),
          ones({kWidth, kWidth}),
          ones({kWidth}),
          ones({kWidth}),
          ones({kWidth, 4 * kWidth}),
          ones({4 * kWidth, kWidth}),
          ones({kWidth}),
          ones({kWidth})};
}

std::vector<hd::Tensor> encoder_layer(std::span<const hd::Tensor> in) {
  const hd::Tensor& x = in[0];
  const auto heads = [&](const hd::Tensor& weight) {
    const hd::Tensor rows = hd::reshape(hd::matmul(x, weight), {1, kRows, kHeads, kWidth / kHeads});
    return hd::permute(rows, {0, 2, 1, 3});
  };
  const hd::Tensor mixed = hd::attention(heads(in[1]), heads(in[2]), heads(in[3]));
  const hd::Tensor joined = hd::reshape(hd::permute(mixed, {0, 2, 1, 3}), {1, kRows, kWidth});
  const hd::Tensor y = hd::layer_norm(x + hd::matmul(joined, in[4]), in[5], in[6]);
  const hd::Tensor inner = hd::matmul(hd::gelu(hd::matmul(y, in[7])), in[8]);
  return {hd::layer_norm(y + inner, in[9], in[10])};
}

void one_kernel_run(const Driver& driver, int calls) {
  run(driver, one_kernel, {ones({64})}, calls);
}

void one_kernel_run_into(const Driver& driver, int calls) {
  run_into(driver, one_kernel, {ones({64})}, calls);
}

void encoder_run(const Driver& driver, int calls) {
  run(driver, encoder_layer, layer_inputs(), calls);
}

void encoder_run_into(const Driver& driver, int calls) {
  run_into(driver, encoder_layer, layer_inputs(), calls);
}

/// The weights are the engine's.
void encoder_of_weights_run_into(const Driver& driver, int calls) {
  const std::vector<hd::Tensor> all = layer_inputs();
  const auto layer = [all](const hd::Tensor& x) {
    std::vector<hd::Tensor> inputs = all;
    inputs[0] = x;
    return encoder_layer(inputs);
  };
  run_into(driver, layer, {all[0]}, calls);
}

const std::map<std::string, void (*)(const Driver&, int)> kCases{
    {"cuda_one_kernel_run", one_kernel_run},
    {"cuda_one_kernel_run_into", one_kernel_run_into},
    {"cuda_encoder_run", encoder_run},
    {"cuda_encoder_run_into", encoder_run_into},
    {"cuda_encoder_of_weights_run_into", encoder_of_weights_run_into},
};

}  // namespace

int main(int argc, char** argv) {
  return hd::bench::make_chosen_case(argc, argv, kCases, [](auto make, int calls) {
    ::setenv("HEDDLE_CUDA_SIM_PATH", HEDDLE_IDLE_DRIVER_PATH, 1);
    make(Driver(), calls);
  });
}
