// Results on any number of threads: bit for bit those of one.
#include <functional>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "tests/engine/random_tensor.h"

namespace hd = heddle;

namespace {

using heddle::test::random_tensor;

/// Inputs, and what is computed of them.
struct Shared {
  std::string name;
  std::vector<hd::Sizes> inputs;
  std::function<hd::Tensor(std::span<const hd::Tensor>)> compute;
};

std::vector<Shared> shared_cases() {
  const auto weights = [](hd::Sizes sizes) { return random_tensor(std::move(sizes), 5); };
  return {
      {"pointwise", {{65536}}, [](const auto& in) { return hd::tanh(in[0] * 3.0f) + in[0]; }},
      {"rows", {{37, 4099}}, [](const auto& in) { return hd::softmax(hd::gelu(in[0]), -1); }},
      {"sum", {{300001}}, [](const auto& in) { return hd::sum(in[0] * in[0]); }},
      {"columns", {{513, 70}}, [](const auto& in) { return hd::sum(in[0], {0}); }},
      {"product",
       {{128, 96}},
       [w = weights({96, 384})](const auto& in) { return hd::gelu(hd::matmul(in[0], w)); }},
      {"few rows",
       {{49, 300}},
       [w = weights({300, 130})](const auto& in) { return hd::matmul(in[0], w); }},
      {"one row",
       {{1, 768}},
       [w = weights({768, 200})](const auto& in) { return hd::matmul(in[0], w); }},
      {"products of a batch",
       {{3, 70, 40}, {3, 90, 40}},
       [](const auto& in) { return hd::matmul(in[0], hd::transpose(in[1], 1, 2)); }},
      {"attention",
       {{1, 4, 65, 32}, {1, 2, 130, 32}, {1, 2, 130, 32}},
       [](const auto& in) { return hd::attention(in[0], in[1], in[2]); }},
      {"attention of one query",
       {{1, 6, 1, 32}, {1, 2, 700, 32}, {1, 2, 700, 32}},
       [](const auto& in) { return hd::attention(in[0], in[1], in[2]); }},
      {"convolutions",
       {{1, 48, 14, 14}},
       [first = weights({80, 48, 3, 3}), second = weights({64, 80, 3, 3})](const auto& in) {
         const hd::Tensor h = hd::relu(hd::conv(in[0], first, {}, {1, 1}, {1, 1}, {1, 1}));
         return hd::conv(h, second, {}, {2, 2}, {1, 1}, {1, 1});
       }},
      {"convolutions of a batch",
       {{3, 32, 11, 11}},
       [w = weights({40, 32, 3, 3})](const auto& in) {
         return hd::relu(hd::conv(in[0], w, {}, {1, 1}, {1, 1}, {1, 1}));
       }},
      {"convolutions with a residual",
       {{1, 128, 7, 7}},
       [w = weights({128, 128, 3, 3})](const auto& in) {
         const hd::Tensor h = hd::relu(in[0] * 2.0f);
         return hd::relu(hd::relu(hd::conv(h, w, {}, {1, 1}, {1, 1}, {1, 1})) + h);
       }},
      {"convolutions of groups",
       {{2, 96, 9, 9}},
       [w = weights({144, 32, 3, 3})](const auto& in) {
         return hd::conv(in[0], w, {}, {2, 1}, {1, 1}, {1, 1}, 3);
       }},
      {"rows of convolutions",
       {{1, 64, 100}},
       [w = weights({128, 64, 3})](const auto& in) {
         return hd::conv(in[0], w, {}, {1}, {1}, {1});
       }},
      {"volumes of convolutions",
       {{1, 16, 5, 6, 7}},
       [w = weights({64, 16, 3, 3, 3})](const auto& in) {
         return hd::conv(in[0], w, {}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1});
       }},
      {"large matrices on the right",
       {{40, 1024}, {1024, 600}},
       [](const auto& in) { return hd::matmul(in[0], in[1]); }},
      {"products of 16 bits",
       {{49, 96}},
       [w = weights({96, 200})](const auto& in) {
         return hd::cast(hd::matmul(hd::cast(in[0], hd::bf16), hd::cast(w, hd::bf16)), hd::f32);
       }},
  };
}

TEST(ManyThreads, GiveTheBitsOfOne) {
  for (const Shared& shared : shared_cases()) {
    SCOPED_TRACE(shared.name);
    std::vector<hd::Tensor> inputs;
    for (const hd::Sizes& sizes : shared.inputs)
      inputs.push_back(random_tensor(sizes, static_cast<unsigned>(inputs.size() + 1)));
    const auto result = [&](int threads) {
      hd::Engine engine([&](std::span<const hd::Tensor> in) { return shared.compute(in); },
                        {.threads = threads, .check_plans = true});
      return engine.run(inputs)[0].to_doubles();
    };
    const std::vector<double> one = result(1);
    for (const int threads : {2, 5, 16, 61})
      EXPECT_TRUE(result(threads) == one) << threads << " threads";
  }
}

}  // namespace
