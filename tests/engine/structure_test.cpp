// Callables return what they like: the typed function gives it back with the tensors put in.
#include <array>
#include <deque>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "heddle/heddle.h"

namespace hd = heddle;
using testing::ElementsAre;

namespace {

struct Output {
  hd::Tensor logits;
  hd::Tensor hidden;
  std::string name;
};
auto heddle_fields(Output& o) { return std::tie(o.logits, o.hidden); }

struct Nested {
  Output first;
  std::map<std::string, std::vector<hd::Tensor>> rest;
  std::optional<hd::Tensor> extra;
  int layers = 0;
};
auto heddle_fields(Nested& n) { return std::tie(n.first, n.rest, n.extra); }

hd::Tensor numbers(std::initializer_list<float> values) {
  return hd::Tensor::of<float>(values, {static_cast<std::int64_t>(values.size())});
}

/// Compiled or by the evaluator: the same structure.
class Returns : public testing::TestWithParam<const char*> {
 protected:
  hd::EngineOptions options() const { return {.device = hd::Device::parse(GetParam())}; }
  const hd::Tensor x_ = numbers({1, 2});
};
INSTANTIATE_TEST_SUITE_P(Structure, Returns, testing::Values("cpu", "reference"));

TEST_P(Returns, ATensor) {
  hd::Function f([](const hd::Tensor& x) { return x + 1; }, options());
  EXPECT_THAT(f(x_).to_doubles(), ElementsAre(2, 3));
  EXPECT_THAT(f(numbers({5})).to_doubles(), ElementsAre(6));
}

TEST_P(Returns, ATuple) {
  hd::Function f([](const hd::Tensor& x) { return std::tuple(x + 1, 7, x * 2); }, options());
  auto [a, seven, b] = f(x_);
  EXPECT_THAT(a.to_doubles(), ElementsAre(2, 3));
  EXPECT_EQ(seven, 7);
  EXPECT_THAT(b.to_doubles(), ElementsAre(2, 4));
}

TEST_P(Returns, APair) {
  hd::Function f([](const hd::Tensor& x) { return std::pair(x - 1, std::string("p")); }, options());
  EXPECT_THAT(f(x_).first.to_doubles(), ElementsAre(0, 1));
  EXPECT_EQ(f(x_).second, "p");
}

TEST_P(Returns, AVectorAndAnArray) {
  hd::Function vector([](const hd::Tensor& x) { return std::vector{x + 1, x + 2, x + 3}; },
                      options());
  EXPECT_EQ(vector(x_).size(), 3u);
  EXPECT_THAT(vector(x_)[2].to_doubles(), ElementsAre(4, 5));
  hd::Function array([](const hd::Tensor& x) { return std::array{x + 1, x + 2}; }, options());
  EXPECT_THAT(array(x_)[1].to_doubles(), ElementsAre(3, 4));
}

TEST_P(Returns, AMap) {
  hd::Function f(
      [](const hd::Tensor& x) {
        return std::map<std::string, hd::Tensor>{{"b", x * 2}, {"a", x + 1}};
      },
      options());
  const std::map<std::string, hd::Tensor> got = f(x_);
  EXPECT_THAT(got.at("a").to_doubles(), ElementsAre(2, 3));
  EXPECT_THAT(got.at("b").to_doubles(), ElementsAre(2, 4));
}

TEST_P(Returns, AnUnorderedMapInTheOrderOfItsKeys) {
  const auto f = [](const hd::Tensor& x) {
    std::unordered_map<std::string, hd::Tensor> all;
    for (int k = 9; k >= 0; --k) all.emplace("k" + std::to_string(k), x + k);
    return all;
  };
  hd::Function typed(f, options());
  const std::unordered_map<std::string, hd::Tensor> got = typed(x_);
  hd::Engine engine(f, options());
  const std::vector<hd::Tensor> flat = engine.run({x_});
  ASSERT_EQ(flat.size(), 10u);
  for (int k = 0; k < 10; ++k) {
    EXPECT_THAT(got.at("k" + std::to_string(k)).to_doubles(), ElementsAre(1 + k, 2 + k));
    EXPECT_THAT(flat[static_cast<std::size_t>(k)].to_doubles(), ElementsAre(1 + k, 2 + k));
  }
}

TEST_P(Returns, AnOptional) {
  hd::Function f(
      [](const hd::Tensor& x) {
        return std::pair(std::optional(x + 1), std::optional<hd::Tensor>());
      },
      options());
  EXPECT_THAT(f(x_).first.value().to_doubles(), ElementsAre(2, 3));
  EXPECT_FALSE(f(x_).second.has_value());
}

TEST_P(Returns, AStruct) {
  hd::Function f([](const hd::Tensor& x) { return Output{x + 1, x * 2, "o"}; }, options());
  const Output got = f(x_);
  EXPECT_THAT(got.logits.to_doubles(), ElementsAre(2, 3));
  EXPECT_THAT(got.hidden.to_doubles(), ElementsAre(2, 4));
  EXPECT_EQ(got.name, "o");
}

TEST_P(Returns, StructsInStructs) {
  hd::Function f(
      [](const hd::Tensor& x, const hd::Tensor& y) {
        return Nested{{x + y, x - y, "n"}, {{"k", {x, y * 2}}}, x * y, 3};
      },
      options());
  const Nested got = f(x_, numbers({10, 20}));
  EXPECT_THAT(got.first.logits.to_doubles(), ElementsAre(11, 22));
  EXPECT_THAT(got.first.hidden.to_doubles(), ElementsAre(-9, -18));
  EXPECT_THAT(got.rest.at("k")[0].to_doubles(), ElementsAre(1, 2));
  EXPECT_THAT(got.rest.at("k")[1].to_doubles(), ElementsAre(20, 40));
  EXPECT_THAT(got.extra.value().to_doubles(), ElementsAre(10, 40));
  EXPECT_EQ(got.layers, 3);
}

struct Parts {
  hd::Tensor parts[2];
  std::deque<hd::Tensor> deque;
  std::list<std::vector<hd::Tensor>> list;
  std::vector<bool> flags;
  std::set<int> numbers;
  char name[8] = "parts";
};
auto heddle_fields(Parts& p) {
  return std::tie(p.parts, p.deque, p.list, p.flags, p.numbers, p.name);
}

TEST_P(Returns, ArraysAndContainersOfEveryKind) {
  const auto f = [](const hd::Tensor& x) {
    return Parts{{x + 1, x + 2}, {x + 3, x + 4}, {{x + 5}, {}, {x + 6, x + 7}}, {true, false}, {3}};
  };
  hd::Function typed(f, options());
  const Parts got = typed(x_);
  EXPECT_THAT(got.parts[1].to_doubles(), ElementsAre(3, 4));
  EXPECT_THAT(got.deque[0].to_doubles(), ElementsAre(4, 5));
  EXPECT_THAT(got.list.back()[1].to_doubles(), ElementsAre(8, 9));
  EXPECT_THAT(got.flags, ElementsAre(true, false));
  EXPECT_THAT(got.numbers, ElementsAre(3));
  hd::Engine engine(f, options());
  const std::vector<hd::Tensor> flat = engine.run({x_});
  ASSERT_EQ(flat.size(), 7u);
  for (std::size_t k = 0; k < 7; ++k)
    EXPECT_EQ(flat[k].to_doubles()[0], static_cast<double>(k + 2));
}

struct Shared {
  std::shared_ptr<Output> first;
  std::shared_ptr<Output> again;
  std::vector<std::shared_ptr<hd::Tensor>> rest;
};
auto heddle_fields(Shared& s) { return std::tie(s.first, s.again, s.rest); }

// What one call returned stays as it was when another one returns.
TEST_P(Returns, ObjectsBehindSharedPointersAreThoseOfTheCall) {
  hd::Function f(
      [](const hd::Tensor& x) {
        const auto output = std::make_shared<Output>(Output{x + 1, x * 2, "o"});
        return Shared{output, output, {std::make_shared<hd::Tensor>(x + 3)}};
      },
      options());
  const Shared one = f(x_);
  const Shared two = f(numbers({10, 20}));
  EXPECT_THAT(one.first->logits.to_doubles(), ElementsAre(2, 3));
  EXPECT_THAT(one.rest[0]->to_doubles(), ElementsAre(4, 5));
  EXPECT_THAT(two.first->hidden.to_doubles(), ElementsAre(20, 40));
  EXPECT_THAT(two.rest[0]->to_doubles(), ElementsAre(13, 23));
  EXPECT_EQ(one.first, one.again);
  EXPECT_NE(one.first, two.first);
  EXPECT_EQ(two.first->name, "o");
}

TEST_P(Returns, ThroughTheErasedEngineInStructureOrder) {
  hd::Engine engine([](const hd::Tensor& x) { return Output{x + 1, x * 2, "o"}; }, options());
  const std::vector<hd::Tensor> got = engine.run({x_});
  ASSERT_EQ(got.size(), 2u);
  EXPECT_THAT(got[0].to_doubles(), ElementsAre(2, 3));
  EXPECT_THAT(got[1].to_doubles(), ElementsAre(2, 4));
}

TEST_P(Returns, InputsAndRepeatsAreTensorsOfTheirOwn) {
  const hd::Tensor weight = numbers({8, 9});
  hd::Function f(
      [weight](const hd::Tensor& x) {
        const hd::Tensor y = x + 1;
        return std::tuple(x, y, y, weight);
      },
      options());
  auto [same, once, again, captured] = f(x_);
  once.data_as<float>()[0] = 100;
  same.data_as<float>()[0] = 100;
  captured.data_as<float>()[0] = 100;
  EXPECT_THAT(again.to_doubles(), ElementsAre(2, 3));
  EXPECT_THAT(x_.to_doubles(), ElementsAre(1, 2));
  EXPECT_THAT(weight.to_doubles(), ElementsAre(8, 9));
  EXPECT_THAT(std::get<3>(f(x_)).to_doubles(), ElementsAre(8, 9));
}

TEST_P(Returns, AResultOutlivesItsFunction) {
  hd::Tensor kept;
  {
    hd::Function f([](const hd::Tensor& x) { return x + 1; }, options());
    kept = f(x_);
  }
  EXPECT_THAT(kept.to_doubles(), ElementsAre(2, 3));
}

}  // namespace
