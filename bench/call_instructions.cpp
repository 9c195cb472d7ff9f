// Calls one cached plan again and again, for scripts/count_instructions, which counts what a call costs in instructions.
//
// usage: call_instructions CASE CALLS          (call_instructions --list)
#include <cstdlib>
#include <iostream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "bench/chosen_case.h"

#include "heddle/heddle.h"

namespace hd = heddle;

namespace {

hd::Tensor ones(hd::Sizes sizes) { return hd::Tensor::full(hd::f32, std::move(sizes), 1); }

/// Calls before those that count, which find the plan and its memory.
constexpr int kCallsBefore = 1000;

template <typename Call>
void repeat(int calls, Call&& call) {
  for (int k = 0; k < kCallsBefore; ++k) call(k);
  hd::bench::counted_calls(calls, call);
}

template <typename Callable>
void run_into(Callable callable, int calls) {
  hd::Engine engine(callable, {.threads = 1});
  const std::vector<hd::Tensor> inputs{ones({16})};
  std::vector<hd::Tensor> outputs{ones({16})};
  repeat(calls, [&](int) { engine.run_into(inputs, outputs); });
}

void one_add(int calls) {
  run_into([](const hd::Tensor& x) { return x + 1; }, calls);
}

void tiny_ops(int calls) {
  run_into(
      [](const hd::Tensor& x) {
        hd::Tensor y = x;
        for (int k = 0; k < 32; ++k) y = y * 0.5 + 1;
        return y;
      },
      calls);
}

void one_add_of_new_outputs(int calls) {
  hd::Engine engine([](const hd::Tensor& x) { return x + 1; }, {.threads = 1});
  const std::vector<hd::Tensor> inputs{ones({16})};
  repeat(calls, [&](int) { engine.run(inputs); });
}

/// Two plans in turns: the memo is asked for another one each time.
void two_sizes(int calls) {
  hd::Engine engine([](const hd::Tensor& x) { return x + 1; }, {.threads = 1});
  const std::vector<hd::Tensor> inputs[] = {{ones({16})}, {ones({17})}};
  std::vector<hd::Tensor> outputs[] = {{ones({16})}, {ones({17})}};
  repeat(calls, [&](int k) { engine.run_into(inputs[k % 2], outputs[k % 2]); });
}

void eight_inputs(int calls) {
  hd::Engine engine(
      [](std::span<const hd::Tensor> xs) {
        hd::Tensor sum = xs[0];
        for (std::size_t k = 1; k < xs.size(); ++k) sum = sum + xs[k];
        return std::vector<hd::Tensor>{sum};
      },
      {.threads = 1});
  const std::vector<hd::Tensor> inputs(8, ones({16}));
  std::vector<hd::Tensor> outputs{ones({16})};
  repeat(calls, [&](int) { engine.run_into(inputs, outputs); });
}

const std::map<std::string, void (*)(int)> kCases{
    {"one_add", one_add},           {"one_add_of_new_outputs", one_add_of_new_outputs},
    {"tiny_ops", tiny_ops},         {"two_sizes", two_sizes},
    {"eight_inputs", eight_inputs},
};

}  // namespace

int main(int argc, char** argv) {
  return hd::bench::make_chosen_case(argc, argv, kCases, [](auto make, int calls) { make(calls); });
}
