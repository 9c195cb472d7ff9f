// Branches and loops, executed: compiled steps against the evaluator.
#include <gmock/gmock.h>
#include <thread>

#include "memory/allocator.h"
#include "tests/control_flow/support.h"
#include "tests/support/json.h"

namespace heddle::testing {
namespace {

using test::Json;

using ::testing::ElementsAre;

Tensor scalar(double value) { return Tensor::scalar(f32, value); }

/// Halves x as long as its sum is over `limit`; counts.
std::pair<Tensor, Tensor> halve(const Tensor& x, const Tensor& limit) {
  using State = std::pair<Tensor, Tensor>;
  return while_loop(
      State(x, Tensor::scalar_int(i64, 0)),
      [&](const State& s) { return greater(sum(s.first), limit); },
      [](const State& s) { return State(s.first * 0.5, s.second + 1); });
}

TEST(Cond, RunsTheTakenBranchOnly) {
  const auto f = [](const Tensor& p, const Tensor& x) {
    return cond(p, [&] { return sin(x) + 1; }, [&] { return matmul(x, x) - 2; });
  };
  for (const bool taken : {true, false}) everywhere(f, {flag(taken), ramp({4, 4})});
}

TEST(Cond, TakesOperandsViewsAndStridedArguments) {
  const auto f = [](const Tensor& p, const Tensor& x) {
    const Tensor turned = permute(x, {1, 0});
    return cond(
        p, [](const Tensor& a, const Tensor& b) { return std::pair(a * 2, sum(b, {0})); },
        [](const Tensor& a, const Tensor& b) { return std::pair(a + 1, amax(b, {0})); }, turned,
        slice(x, 1, 1, 3));
  };
  std::vector<float> data(24, 0);
  for (std::size_t k = 0; k < data.size(); ++k) data[k] = static_cast<float>(k);
  const Tensor strided = Tensor::wrap_strided(data.data(), f32, {3, 4}, {8, 2});
  for (const bool taken : {true, false}) {
    everywhere(f, {flag(taken), ramp({3, 4})});
    everywhere(f, {flag(taken), strided});
  }
}

TEST(Cond, ReturnsWhatItWasGiven) {
  const auto f = [](const Tensor& p, const Tensor& x, const Tensor& y) {
    const auto [a, b] = cond(p, [&] { return std::pair(x, x); }, [&] { return std::pair(y, x); });
    return a - b * 3;
  };
  for (const bool taken : {true, false}) everywhere(f, {flag(taken), ramp({5}), ramp({5}, 2)});
}

TEST(While, TheNumberOfIterationsFollowsTheData) {
  Engine engine([](const Tensor& x, const Tensor& limit) { return halve(x, limit); });
  for (const double limit : {100.0, 3.0, 1.0, 0.01}) {
    const std::vector<Tensor> got =
        everywhere([](const Tensor& x, const Tensor& l) { return halve(x, l); },
                   {numbers({1, 2, 3, 2}), scalar(limit)});
    double total = 8;
    int steps = 0;
    for (; total > limit; total /= 2) ++steps;
    EXPECT_EQ(got[1].to_doubles()[0], steps);
    EXPECT_EQ(engine.run({numbers({1, 2, 3, 2}), scalar(limit)})[1].to_doubles()[0], steps);
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(While, SwapsWhatItCarries) {
  const auto f = [](const Tensor& x, const Tensor& y, const Tensor& n) {
    using State = std::tuple<Tensor, Tensor, Tensor>;
    const auto [a, b, k] = while_loop(
        State(x, y, n), [](const State& s) { return greater(std::get<2>(s), 0); },
        [](const State& s) { return State(std::get<1>(s), std::get<0>(s), std::get<2>(s) - 1); });
    return a - b * 2 + cast(k, f32);
  };
  for (const int n : {0, 1, 2, 5})
    everywhere(f, {ramp({3}), ramp({3}, 4), Tensor::scalar_int(i64, n)});
}

/// Products that stay the same come before the loop, which runs seven times, once or not at all.
TEST(While, MultipliesOnceWhatStaysTheSame) {
  const auto f = [](const Tensor& x, const Tensor& w, const Tensor& n) {
    const auto [sums, kept, k] = while_loop(
        std::tuple(sum(x, {1}), w, n),
        [](const std::tuple<Tensor, Tensor, Tensor>& s) { return greater(std::get<2>(s), 0); },
        [&](const std::tuple<Tensor, Tensor, Tensor>& s) {
          const auto& [h, same, left] = s;
          const Tensor scores = tanh(matmul(x, permute(same, {1, 0})));
          return std::tuple(h * 0.5f + matmul(scores, amax(scores, {0})), same, left - 1);
        });
    return std::pair(sums + sum(kept), cast(k, f32));
  };
  for (const std::int64_t times : {7, 1, 0})
    everywhere(f, {ramp({3, 5}) * 1e-2f, ramp({4, 5}, -9) * 1e-1f, Tensor::scalar_int(i64, times)});
}

/// Halves x as long as its sum is over `limit`, and gives what it met.
TEST(While, StacksWhatEachIterationGives) {
  const auto f = [](const Tensor& x, const Tensor& limit) {
    const auto [last, all] = scan_while(
        x, [&](const Tensor& now) { return greater(sum(now), limit); },
        [](const Tensor& now) { return std::pair(now * 0.5f, std::pair(sum(now), now + 1.0f)); });
    return std::tuple(last, all.first, all.second * 2.0f);
  };
  Engine engine(f);
  for (const double limit : {100.0, 3.0, 1.0, 1e-9}) {
    const std::vector<Tensor> inputs{numbers({1, 2, 3, 2}), scalar(limit)};
    const std::vector<Tensor> got = everywhere(f, inputs);
    std::vector<double> sums;
    for (double total = 8; total > limit; total /= 2) sums.push_back(total);
    EXPECT_EQ(got[1].to_doubles(), sums);
    EXPECT_THAT(got[2].sizes(), ElementsAre(sums.size(), 4));
    EXPECT_EQ(engine.run(inputs)[1].to_doubles(), sums);
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(While, ThatStacksServesManyThreadsAtOnce) {
  Engine engine(
      [](const Tensor& x, const Tensor& limit) {
        return scan_while(
                   x, [&](const Tensor& now) { return greater(sum(now), limit); },
                   [](const Tensor& now) { return std::pair(now * 0.5f, now); })
            .second;
      },
      {.threads = 2});
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int repeat = 0; repeat < 20; ++repeat) {
        const double limit = 4.0 / static_cast<double>(1 << ((t + repeat) % 4));
        const Tensor got = engine.run({numbers({1, 2, 3, 2}), scalar(limit)})[0];
        std::int64_t steps = 0;
        for (double total = 8; total > limit; total /= 2) ++steps;
        ASSERT_THAT(got.sizes(), ElementsAre(steps, 4));
        EXPECT_EQ(got.to_doubles()[static_cast<std::size_t>(4 * steps - 2)],
                  3.0 / static_cast<double>(1 << (steps - 1)));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

/// The bodies run outside of a trace too.
TEST(While, StacksWithoutATrace) {
  for (const std::int64_t limit : {3, 0}) {
    const auto [last, all] = scan_while(
        Tensor::scalar_int(i64, 0),
        [&](const Tensor& now) { return less(now, Tensor::scalar_int(i64, limit)); },
        [](const Tensor& now) { return std::pair(now + 1, now * 10); });
    EXPECT_EQ(last.item(), static_cast<double>(limit));
    EXPECT_THAT(all.sizes(), ElementsAre(limit));
    const std::vector<double> tens{0, 10, 20};
    EXPECT_EQ(all.to_doubles(), std::vector<double>(tens.begin(), tens.begin() + limit));
  }
}

/// A body that fails, and one that asks for sizes of its own.
TEST(While, ThatStacksMayFailAndGoOn) {
  Engine engine([](const Tensor& x, const Tensor& places) {
    return scan_while(
               std::pair(Tensor::scalar_int(i64, 0), x),
               [&](const std::pair<Tensor, Tensor>& s) { return less(s.first, 3); },
               [&](const std::pair<Tensor, Tensor>& s) {
                 const Tensor at = reshape(slice(places, 0, 0, 1), {}) + s.first;
                 return std::pair(std::pair(s.first + 1, s.second * 2.0f), gather(s.second, at, 0));
               })
        .second;
  });
  const Tensor x = numbers({1, 2, 3, 4});
  const auto places = [](std::int64_t first) {
    Tensor tensor = Tensor::full(i64, {1}, static_cast<double>(first));
    return tensor;
  };
  EXPECT_THAT(engine.run({x, places(0)})[0].to_doubles(), ElementsAre(1, 4, 12));
  EXPECT_THROW(engine.run({x, places(2)}), IndexError);
  EXPECT_THAT(engine.run({x, places(1)})[0].to_doubles(), ElementsAre(2, 6, 16));
}

TEST(While, ARankThatChangesIsRefused) {
  Engine engine([](const Tensor& x) {
    return while_loop(
        x, [](const Tensor& s) { return less(sum(s), 10); },
        [](const Tensor& s) { return unsqueeze(s, 0); });
  });
  EXPECT_EQ(unplaced_text_of<ShapeError>([&] { engine.run({numbers({1, 2})}); }),
            "while_loop: C4 the body keeps the shape of carried value 0: expected f32[2], got "
            "f32[1, 2]");
}

TEST(While, AStructureThatChangesIsRefused) {
  Engine engine([](const Tensor& x) {
    return while_loop(
        std::vector<Tensor>{x}, [](const std::vector<Tensor>& s) { return less(sum(s[0]), 10); },
        [](const std::vector<Tensor>& s) { return std::vector<Tensor>{s[0], s[0]}; })[0];
  });
  EXPECT_EQ(unplaced_text_of<StructureError>([&] { engine.run({numbers({1, 2})}); }),
            "while_loop: the body returns another structure than the loop starts with: expected "
            "[tensor], got [tensor, tensor]");
}

TEST(Scan, SumsAndKeepsEachStep) {
  for (const bool reverse : {false, true}) {
    const auto f = [reverse](const Tensor& start, const Tensor& xs) {
      return scan(start, xs,
                  [](const Tensor& carry, const Tensor& x) {
                    const Tensor next = carry + x;
                    return std::pair(next, std::pair(next * 2, x - carry));
                  },
                  {.reverse = reverse});
    };
    for (const std::int64_t length : {0, 1, 2, 7}) everywhere(f, {ramp({3}), ramp({length, 3}, 1)});
  }
}

TEST(Scan, RunsAsManySlicesAsItIsTold) {
  constexpr std::int64_t kLength = 5;
  for (const bool reverse : {false, true}) {
    const auto f = [reverse](const Tensor& start, const Tensor& xs, const Tensor& count) {
      return scan(start, xs,
                  [](const Tensor& carry, const Tensor& x) {
                    const Tensor next = carry * 2 + x;
                    return std::pair(next, next + 1);
                  },
                  {.reverse = reverse, .count = count});
    };
    for (const std::int64_t count : {-1, 0, 1, 4, 5, 9}) {
      SCOPED_TRACE(count);
      const std::vector<Tensor> inputs{numbers({1}), ramp({kLength, 1}, 1),
                                       Tensor::scalar_int(i64, count)};
      std::vector<double> wanted(kLength, 0);
      double carry = 1;
      const std::int64_t run = std::clamp<std::int64_t>(count, 0, kLength);
      for (std::int64_t step = 0; step < run; ++step) {
        const auto at = static_cast<std::size_t>(reverse ? run - 1 - step : step);
        carry = carry * 2 + inputs[1].to_doubles()[at];
        wanted[at] = carry + 1;
      }
      const std::vector<Tensor> got = everywhere(f, inputs);
      EXPECT_THAT(got[0].to_doubles(), ElementsAre(carry));
      EXPECT_THAT(got[1].to_doubles(), ::testing::ElementsAreArray(wanted));
      const auto [last, elements] = f(inputs[0], inputs[1], inputs[2]);
      EXPECT_THAT(last.to_doubles(), ElementsAre(carry));
      EXPECT_THAT(elements.to_doubles(), ::testing::ElementsAreArray(wanted));
    }
  }
}

TEST(Scan, TheCarryGoesOnByPosition) {
  // Both handles are one value in the first iteration, and part in the second.
  const auto f = [](const Tensor& x, const Tensor& xs) {
    using Carry = std::pair<Tensor, Tensor>;
    return scan(Carry(x, x), xs, [](const Carry& c, const Tensor& s) {
      return std::pair(Carry(c.second, c.first + s), c.first * c.second);
    });
  };
  everywhere(f, {ramp({2}), ramp({5, 2})});
}

TEST(Map, RunsTheBodyOverStructures) {
  const Tensor weight = ramp({3, 3});
  const auto f = [&](const Tensor& x, const Tensor& y) {
    return map(
        [&](const std::pair<Tensor, Tensor>& s) {
          return std::pair(matmul(s.first, weight), softmax(s.second));
        },
        std::pair(x, y));
  };
  everywhere(f, {ramp({4, 2, 3}), ramp({4, 5})});
  everywhere(f, {ramp({0, 2, 3}), ramp({0, 5})});
}

TEST(Nested, ACondInAWhileInAScan) {
  const Tensor weight = ramp({4, 4}, -2);
  const auto f = [&](const Tensor& x, const Tensor& xs) {
    using State = std::pair<Tensor, Tensor>;
    return scan(x, xs, [&](const Tensor& carry, const Tensor& slice) {
      const State done = while_loop(
          State(carry + slice, Tensor::scalar_int(i64, 0)),
          [&](const State& s) {
            return logical_and(greater(sum(abs(s.first)), 3), less(s.second, 20));
          },
          [&](const State& s) {
            const Tensor next = cond(
                greater(sum(s.first), 0), [&] { return tanh(matmul(s.first, weight)) * 0.5; },
                [&] { return s.first * 0.25 - slice * 0.01; });
            return State(next, s.second + 1);
          });
      return std::pair(done.first, done);
    });
  };
  everywhere(f, {ramp({2, 4}), ramp({6, 2, 4}, 3)});
  everywhere(f, {ramp({2, 4}), ramp({0, 2, 4}, 3)});
}

TEST(Nested, SizesAreThoseOfTheCall) {
  Engine engine([](const Tensor& x, const Tensor& xs) {
    return scan(x, xs, [](const Tensor& c, const Tensor& s) {
      const Tensor n = cast(size_tensor(c.size(0)), f32);
      return std::pair(c + s / n, concat({c, s}, 0));
    });
  });
  for (const std::int64_t size : {1, 3, 33}) {
    const std::vector<Tensor> got = engine.run({ramp({size}), ramp({2, size})});
    EXPECT_EQ(got[1].sizes()[1], 2 * size);
    const std::vector<double> x = ramp({size}).to_doubles();
    const std::vector<double> xs = ramp({2, size}).to_doubles();
    for (std::size_t k = 0; k < x.size(); ++k) {
      const double n = static_cast<double>(size);
      EXPECT_NEAR(got[0].to_doubles()[k], x[k] + xs[k] / n + xs[x.size() + k] / n, 1e-5);
    }
  }
  EXPECT_EQ(engine.stats().compiles, 1u);
}

TEST(Nested, WorkOnParametersIsFoldedInsideToo) {
  const Tensor weight = ramp({8, 8});
  Engine engine([&](const Tensor& x) {
    return while_loop(
        x, [](const Tensor& s) { return greater(sum(s), 1); },
        [&](const Tensor& s) { return s * 0.5 - topk(weight, 8, 0).first; });
  });
  const std::vector<Tensor> inputs{ramp({8, 8})};
  EXPECT_GE(Json::parse(engine.plan_json(inputs)).at("folded_steps").get<int>(), 1);
  engine.run(inputs);
}

TEST(Nested, ThePlanShowsItsPlansAndTheirArenaIsPartOfIt) {
  Engine engine([](const Tensor& x, const Tensor& limit) { return halve(sin(x), limit).first; });
  const Json plan = Json::parse(engine.plan_json(std::vector<Tensor>{ramp({1000}), scalar(1)}));
  int found = 0;
  for (const Json& step : plan.at("steps")) {
    if (!step.contains("nested")) continue;
    ++found;
    ASSERT_EQ(step.at("nested").size(), 2u);
    EXPECT_EQ(step.at("nested")[0].at("graph"), "condition");
    EXPECT_EQ(step.at("nested")[1].at("graph"), "body");
    EXPECT_GE(step.at("nested")[1].at("kernels").size(), 1u);
  }
  EXPECT_EQ(found, 1);
  // The second copy of the carried tensor lies in the workspace.
  bool workspace = false;
  for (const Json& buffer : plan.at("buffers"))
    if (buffer.at("role") == "workspace") workspace = buffer.at("bytes").get<int>() >= 4000;
  EXPECT_TRUE(workspace);
  EXPECT_GE(plan.at("peak_bytes").get<int>(), 4000);
}

TEST(Nested, TheSteadyStateAllocatesNothing) {
  Engine engine([](const Tensor& x, const Tensor& limit) { return halve(x, limit); });
  const std::vector<Tensor> inputs{ramp({100}), scalar(0.5)};
  std::vector<Tensor> outputs = engine.run(inputs);
  engine.run_into(inputs, outputs);
  const auto before = memory::CachingAllocator::host().stats().allocations;
  for (int k = 0; k < 10; ++k) engine.run_into(inputs, outputs);
  EXPECT_EQ(memory::CachingAllocator::host().stats().allocations, before);
}

TEST(Nested, ManyThreadsRunOneEngine) {
  Engine engine([](const Tensor& x, const Tensor& limit) { return halve(x, limit); },
                {.threads = 2});
  std::vector<std::thread> threads;
  std::vector<double> counts(4, -1);
  for (std::size_t t = 0; t < counts.size(); ++t)
    threads.emplace_back([&, t] {
      const double limit = 8.0 / static_cast<double>(1 << t) + 0.1;
      for (int k = 0; k < 50; ++k)
        counts[t] = engine.run({numbers({1, 2, 3, 2}), scalar(limit)})[1].to_doubles()[0];
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(counts, ElementsAre(0, 1, 2, 3));
}

TEST(Nested, ErrorsInsideALoopEndItAndTheEngineGoesOn) {
  Engine engine([](const Tensor& x, const Tensor& at) {
    return while_loop(
        std::pair(x, at), [](const auto& s) { return greater(sum(s.first), 0); },
        [](const auto& s) { return std::pair(s.first - gather(s.first, s.second), s.second + 1); });
  });
  const Tensor x = numbers({1, 1});
  EXPECT_THROW(engine.run({x, Tensor::of<std::int64_t>({5}, {1})}), IndexError);
  EXPECT_NO_THROW(engine.run({x, Tensor::of<std::int64_t>({0}, {1})}));
}

TEST(Nested, WithoutATraceTheBodiesRun) {
  const Tensor x = numbers({1, 2, 3, 2});
  EXPECT_EQ(halve(x, scalar(3)).second.to_doubles()[0], 2);
  const auto [last, all] =
      scan(scalar(0), x, [](const Tensor& c, const Tensor& s) { return std::pair(c + s, c + s); });
  EXPECT_EQ(last.item(), 8);
  EXPECT_THAT(all.to_doubles(), ElementsAre(1, 3, 6, 8));
  EXPECT_THAT(map([](const Tensor& s) { return s * s; }, x).to_doubles(), ElementsAre(1, 4, 9, 4));
  EXPECT_EQ(cond(flag(false), [] { return 1; }, [] { return 2; }), 2);
}

/// An LSTM over [time, batch, input], its cell written once.
struct LstmState {
  Tensor h;
  Tensor c;
};
auto heddle_fields(LstmState& state) { return std::tie(state.h, state.c); }

TEST(Example, AnLstmIsAScanOfItsCell) {
  const Tensor wx = ramp({3, 8}, -2);
  const Tensor wh = ramp({2, 8}, -1);
  const auto lstm = [&](const Tensor& xs, const Tensor& h, const Tensor& c) {
    return scan(LstmState{h, c}, xs, [&](const LstmState& state, const Tensor& x) {
      const std::vector<Tensor> gates = split(matmul(x, wx) + matmul(state.h, wh), {2, 2, 2, 2}, 1);
      const Tensor next_c = sigmoid(gates[0]) * state.c + sigmoid(gates[1]) * tanh(gates[2]);
      const Tensor next_h = sigmoid(gates[3]) * tanh(next_c);
      return std::pair(LstmState{next_h, next_c}, next_h);
    });
  };
  const std::vector<Tensor> got = everywhere(lstm, {ramp({5, 4, 3}), ramp({4, 2}), ramp({4, 2})});
  ASSERT_EQ(got.size(), 3u);
  const std::vector<double> all = got[2].to_doubles();
  EXPECT_EQ(std::vector<double>(all.end() - 8, all.end()), got[0].to_doubles());
}

/// Wide enough for its products of slices to come before the loop, and for its gates to be computed with the products that are left.
TEST(Scan, OfAWideCellGivesWhatItsStepsGive) {
  const Tensor wx = ramp({20, 128}, -1280) * 1e-3f;
  const Tensor wh = ramp({32, 128}, -2048) * 3e-4f;
  for (const bool reverse : {false, true}) {
    const auto lstm = [&](const Tensor& xs, const Tensor& h, const Tensor& c) {
      return scan(LstmState{h, c}, xs,
                  [&](const LstmState& state, const Tensor& x) {
                    const std::vector<Tensor> gates =
                        split(matmul(x, wx) + matmul(state.h, wh), {32, 32, 32, 32}, 1);
                    const Tensor next_c =
                        sigmoid(gates[0]) * state.c + sigmoid(gates[1]) * tanh(gates[2]);
                    const Tensor next_h = sigmoid(gates[3]) * tanh(next_c);
                    return std::pair(LstmState{next_h, next_c}, next_h + sum(x));
                  },
                  {.reverse = reverse});
    };
    for (const std::int64_t length : {0, 1, 5})
      everywhere(lstm, {ramp({length, 2, 20}) * 1e-2f, ramp({2, 32}) * 1e-2f, ramp({2, 32})});
  }
}

TEST(Scan, CountsWhereNothingIsScanned) {
  const auto f = [](const Tensor& x) {
    return map([&](const std::vector<Tensor>&) { return x * 2.0f; }, std::vector<Tensor>(),
               {.length = 3});
  };
  const std::vector<Tensor> got = everywhere(f, {ramp({2}, 1)});
  EXPECT_THAT(got[0].sizes(), ElementsAre(3, 2));
}

// A length is at least 0 in every call, or is refused by name.
TEST(Scan, ALengthThatBecomesNegativeIsRefused) {
  Engine engine([](const Tensor& x) {
    return scan(Tensor::full(f32, {}, 0.0), std::vector<Tensor>(),
                [](const Tensor& total, const std::vector<Tensor>&) {
                  return std::pair(total + 1.0f, total);
                },
                {.length = x.size(0) - 2})
        .first;
  });
  EXPECT_THAT(engine.run({ramp({4})})[0].to_doubles(), ElementsAre(2));
  EXPECT_THAT(engine.run({ramp({2})})[0].to_doubles(), ElementsAre(0));
  EXPECT_THAT(unplaced_text_of<ShapeError>([&] { engine.run({ramp({1})}); }),
              ::testing::HasSubstr("scan: C1 length: expected sizes of at least 0"));
  Engine fixed([](const Tensor& x) {
    return scan(x, std::vector<Tensor>(),
                [](const Tensor& y, const std::vector<Tensor>&) { return std::pair(y, y); },
                {.length = -2})
        .first;
  });
  EXPECT_THAT(unplaced_text_of<ShapeError>([&] { fixed.run({ramp({1})}); }),
              ::testing::HasSubstr("got [-2]"));
}

}  // namespace
}  // namespace heddle::testing
