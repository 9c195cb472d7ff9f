// Programs with sizes that only the run tells, of branches and of ops' results, for every backend.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "heddle/cuda_text.h"
#include "heddle/custom_op.h"
#include "tests/control_flow/support.h"

namespace heddle::testing {

/// The positive elements of a vector, in order.
inline CustomOp positive_op(std::string name) {
  static const CudaText text(
      R"(extern "C" __global__ void positive(const float* x, float* out, long long n) {
    for (long long k = 0; k < n; ++k)
      if (x[k] > 0) *out++ = x[k];
  })",
      "positive");
  return {.schema = std::move(name) + "(Tensor x) -> Tensor",
          .shape =
              [](const ShapeCall& call) {
                return std::vector{TensorType{call.tensor(0).dtype, {call.unbacked()}}};
              },
          .cpu =
              [](const KernelCall& call) {
                const auto* x = call.tensor(0).as<float>();
                auto* out = call.results[0].as<float>();
                for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
                  if (x[k] > 0) *out++ = x[k];
              },
          .sizes =
              [](const KernelCall& call) {
                const auto* x = call.tensor(0).as<float>();
                std::int64_t count = 0;
                for (std::int64_t k = 0; k < call.tensor(0).count(); ++k) count += x[k] > 0 ? 1 : 0;
                return std::vector<Sizes>{{count}};
              },
          .cuda =
              [](const KernelCall& call, void* stream) {
                text.launch(call, stream, {.threads = 1}, call.tensor(0).as<const float>(),
                            call.results[0].as<float>(),
                            static_cast<long long>(call.tensor(0).count()));
              }};
}

inline const RegisteredOp& positive() {
  static const RegisteredOp op = register_op(positive_op("late::positive"));
  return op;
}

/// The same, which counts on the device.
inline const RegisteredOp& positive_counted_there() {
  static const CudaText text(
      R"(extern "C" __global__ void count_positive(const float* x, long long* told, long long n) {
    long long count = 0;
    for (long long k = 0; k < n; ++k) count += x[k] > 0 ? 1 : 0;
    *told = count;
  })",
      "count_positive");
  static const RegisteredOp op = [] {
    CustomOp made = positive_op("late::positive_counted_there");
    made.cuda_sizes = [](const KernelCall& call, std::int64_t* told, void* stream) {
      text.launch(call, stream, {.threads = 1}, call.tensor(0).as<const float>(),
                  reinterpret_cast<long long*>(told),
                  static_cast<long long>(call.tensor(0).count()));
    };
    return register_op(std::move(made));
  }();
  return op;
}

/// One copy of x, or two.
inline Tensor once_or_twice(const Tensor& p, const Tensor& x) {
  return cond(p, [&] { return x * 3.0f; }, [&] { return concat({x, x + 1.0f}, 0); });
}

/// A traced callable and calls of it.
struct LateProgram {
  std::string name;
  std::function<std::vector<Tensor>(std::span<const Tensor>)> function;
  std::vector<std::vector<Tensor>> calls;
};

inline std::vector<LateProgram> late_programs() {
  using List = std::vector<Tensor>;
  using Inputs = std::span<const Tensor>;
  std::vector<LateProgram> programs;
  LateProgram branch{"OfABranch",
                     [](Inputs in) -> List {
                       const Tensor y = once_or_twice(in[0], in[1]);
                       return {softmax(y * 0.5f, 0), sum(y, {0})};
                     },
                     {}};
  for (const bool taken : {true, false})
    for (const std::int64_t rows : {1, 5, 0})
      branch.calls.push_back({flag(taken), ramp({rows, 3})});
  programs.push_back(std::move(branch));

  const auto chain = [](const RegisteredOp& op) {
    return [&op](Inputs in) -> List {
      const Tensor& x = in[0];
      const Tensor a = op(x)[0];              // u0
      const Tensor b = op(a - 2.0f)[0];       // u1
      const Tensor c = concat({a, b, x}, 0);  // u0 + u1 + s0
      return {a + 1.0f, b * b, c, matmul(unsqueeze(b, 1), unsqueeze(in[1], 0))};
    };
  };
  std::vector<List> vectors;
  for (const auto& x :
       {numbers({1, -1, 2, 3, 4}), numbers({-1, -2}), numbers({1, 2, 1}), numbers({9, 9})})
    vectors.push_back({x, numbers({1, 2, 3})});
  programs.push_back({"OneAfterAnother", chain(positive()), vectors});
  programs.push_back({"CountedOnTheDevice", chain(positive_counted_there()), vectors});

  programs.push_back({"WhereOnlyTheSizeIsUsed",
                      [](Inputs in) -> List {
                        const SymInt count = positive()(in[0])[0].size(0);
                        return {iota({count}, 0, f32) * 2.0f, size_tensor(count * 3)};
                      },
                      {{numbers({1, -1, 2, 3})}, {numbers({-1})}}});

  // Lowered by their mean until the sum of the positive ones is small.
  programs.push_back({"InAWhileLoop",
                      [](Inputs in) -> List {
                        return {while_loop(
                            in[0],
                            [](const Tensor& y) { return greater(sum(positive()(y)[0]), 3.0f); },
                            [](const Tensor& y) { return y - sum(positive()(y)[0]) / 8.0f; })};
                      },
                      {{numbers({5, -1, 2, 3})}, {numbers({1, -1})}}});
  programs.push_back(
      {"InAScan",
       [](Inputs in) -> List {
         return {
             scan(Tensor::full(f32, {}, 0.0), in[0], [](const Tensor& total, const Tensor& row) {
               const Tensor kept = positive()(row)[0];
               return std::pair(total + sum(kept), amax(concat({kept, numbers({0.5})}, 0)));
             }).second};
       },
       {{Tensor::of<float>({1, -2, 3, -4, -5, -6, 7, 8, 9}, {3, 3})}}});

  LateProgram inner{"OfABranchThatFindsThemItself",
                    [](Inputs in) -> List {
                      const Tensor& x = in[1];
                      const auto [kept, total, plain] = cond(
                          in[0],
                          [&] {
                            const Tensor a = positive()(x)[0];
                            const Tensor b = positive()(a - 1.0f)[0];
                            return std::tuple(concat({a, b}, 0), sum(a), b + 0.5f);
                          },
                          [&] { return std::tuple(x * 2.0f, sum(x), x); });
                      return {kept + 1.0f, total, exp(plain), concat({kept, plain}, 0)};
                    },
                    {}};
  for (const bool taken : {true, false})
    for (const auto& x : {numbers({1, -1, 2, 3}), numbers({-1, -2, -3}), numbers({4})})
      inner.calls.push_back({flag(taken), x});
  programs.push_back(std::move(inner));

  programs.push_back({"OfEachCallOfARegion",
                      [](Inputs in) -> List {
                        const auto kept = [](const Tensor& y) { return positive()(y)[0] * 2.0f; };
                        const Tensor a = invoke({.name = "kept"}, kept, in[0]);
                        const Tensor b = invoke({.name = "kept"}, kept, a - 3.0f);
                        return {a, b, concat({a, b}, 0)};
                      },
                      {{numbers({1, -1, 2, 3})}, {numbers({-1, -1})}}});

  // Calls beside each other of a body that calls another one: its memory is that of several streams at once.
  const auto inner_body = [](const Tensor& y) {
    const Tensor kept = cumsum(positive()(y)[0], 0);
    return y * 0.5f + sum(cumsum(kept * kept, 0)) / 64.0f;
  };
  const auto outer_body = [inner_body](const Tensor& y) {
    const Tensor a = invoke({.name = "inner"}, inner_body, y);
    return tanh(a + invoke({.name = "inner"}, inner_body, cumsum(a, 0) - 1.0f));
  };
  programs.push_back({"InBodiesThatManyCallsShare",
                      [outer_body](Inputs in) -> List {
                        const Tensor c = invoke({.name = "outer"}, outer_body, in[0]);
                        const auto on_stream = [&](int stream, const Tensor& x) {
                          const Annotate pinned{{"stream", stream}};
                          return invoke({.name = "outer"}, outer_body, x);
                        };
                        const Tensor d = on_stream(1, in[0] * -1.0f);
                        const Tensor e = on_stream(2, in[1]);
                        return {c, d, e, invoke({.name = "outer"}, outer_body, c + d + e)};
                      },
                      {{numbers({1, -1, 2, 3}), numbers({1, 1, 1, -1})},
                       {numbers({-1, -1, -2}), numbers({3, 2, 1})}}});

  programs.push_back({"OfWhatIsNotZero",
                      [](Inputs in) -> List {
                        const Tensor rows = compress(in[0], greater(sum(in[0], {1}), 3.0f), 0);
                        const Tensor at = nonzero(rows);
                        return {rows * 2.0f, at, nonzero(greater(at, 0)), sum(rows, {0})};
                      },
                      {{ramp({9, 3})},
                       {Tensor::zeros(f32, {4, 2})},
                       {Tensor::zeros(f32, {0, 3})},
                       {Tensor::zeros(f32, {3, 0})},
                       {ramp({1, 1}, 5)},
                       {ramp({17, 3})}}});

  // Two counts that turn out equal, to each other and to a size that is known: added, multiplied, in a matrix.
  programs.push_back({"ThatMustBeEqual",
                      [](Inputs in) -> List {
                        const Tensor a = positive()(in[0])[0];
                        const Tensor b = positive_counted_there()(in[0] * -1.0f)[0];
                        const Tensor rows = matmul(unsqueeze(a, 0), in[1]) + sum(b);
                        const Tensor known = where(greater(in[2], 1.5f), a, in[2]);
                        return {a + b, rows, known * b, matmul(unsqueeze(b, 1), unsqueeze(a, 0))};
                      },
                      {{numbers({1, -1, 2, -3}), ramp({2, 5}), numbers({1, 2})},
                       {numbers({-4, 4}), ramp({1, 3}), numbers({2})},
                       {numbers({-1, -2, 3, -4, 5, 6}), ramp({3, 4}), numbers({0, 2, 1})}}});

  // Two chains beside each other, with work around them for several streams.
  programs.push_back({"BesideOtherWork",
                      [](Inputs in) -> List {
                        const Tensor m = matmul(softmax(matmul(in[1], in[1]), -1), in[1]);
                        const Tensor a = softmax(positive()(in[0])[0], 0);
                        const Tensor b = positive_counted_there()(cumsum(in[0] * -1.0f, 0))[0];
                        const Tensor c = cond(
                            in[2], [&] { return concat({a, b}, 0); }, [&] { return b * 2.0f; });
                        return {matmul(m, in[1]), cumsum(c, 0), a, sum(softmax(m, 0)) + sum(c)};
                      },
                      {{numbers({1, -1, 2, 3}), ramp({4, 4}), flag(true)},
                       {numbers({-1, -3, 2}), ramp({3, 3}), flag(false)},
                       {numbers({4}), ramp({5, 5}), flag(true)}}});
  return programs;
}

}  // namespace heddle::testing
