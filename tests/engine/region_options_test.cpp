// Options of compile units, one by one: each reaches its unit and no other, and the engine's own stay what they were.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "heddle/heddle.h"
#include "tests/support/json.h"

namespace heddle::testing {
namespace {

using test::Json;
using ::testing::HasSubstr;

Tensor random_tensor(Sizes sizes, unsigned seed) {
  Tensor tensor = Tensor::empty(f32, std::move(sizes));
  std::mt19937 engine(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (std::int64_t k = 0; k < tensor.count(); ++k) tensor.data_as<float>()[k] = uniform(engine);
  return tensor;
}

/// A convolution, attention, and an expression that occurs twice: something for each option to change.
std::vector<Tensor> block(const Tensor& image, const Tensor& heads) {
  static const Tensor weights = random_tensor({64, 64, 3, 3}, 1);
  const Tensor scores = matmul(heads, permute(heads, {0, 1, 3, 2})) * 0.5;
  return {conv(image, weights, {}, {1, 1}, {1, 1}, {1, 1}), matmul(softmax(scores, -1), heads),
          tanh(exp(heads) * 2.0 + exp(heads))};
}

std::vector<Tensor> marked(const Tensor& image, const Tensor& heads, const char* id,
                           const AnnotationMap& options) {
  const Annotate scope{{"compile", AnnotationMap{{"id", id}, {"options", options}}}, {"name", id}};
  return block(image, heads);
}

std::vector<Tensor> inputs() {
  return {random_tensor({1, 64, 28, 28}, 2), random_tensor({2, 2, 8, 8}, 3)};
}

/// Two equal blocks in units "a", under `options`, and "b", under none, and one in no unit.
Engine engine_of(const AnnotationMap& options, EngineOptions settings = {}) {
  settings.disk_cache = false;
  settings.threads = 1;
  return Engine(
      [options](const Tensor& image, const Tensor& heads) {
        std::vector<Tensor> results = marked(image, heads, "a", options);
        for (const Tensor& result : marked(image + 1.0, heads + 1.0, "b", {}))
          results.push_back(result);
        for (const Tensor& result : block(image + 2.0, heads + 2.0)) results.push_back(result);
        return results;
      },
      settings);
}

/// The kernels of the unit `id`, or of none, as kinds with nodes; names without those of the scope.
std::vector<std::string> kernels_of(const Json& plan, const std::string& id) {
  std::string name;
  for (const Json& region : plan["regions"])
    if (region["id"] == id) name = region["name"];
  EXPECT_EQ(name.empty(), id.empty());
  std::vector<std::string> texts;
  for (const Json& kernel : plan["kernels"]) {
    if (kernel["unit"] != name) continue;
    std::string text = kernel["kind"];
    for (const std::string node : kernel["nodes"])
      text += " " + (id.empty() ? node : node.substr(id.size() + 1));
    texts.push_back(std::move(text));
  }
  std::ranges::sort(texts);
  return texts;
}

std::size_t nodes_in(const std::string& kernel) {
  return static_cast<std::size_t>(std::ranges::count(kernel, ' '));
}
bool any_has(const std::vector<std::string>& kernels, const std::string& part) {
  return std::ranges::any_of(
      kernels, [&](const std::string& text) { return text.find(part) != std::string::npos; });
}

/// What is not a function of an engine's options, as text.
std::string text_of(const EngineOptions& options) {
  std::string text = options.device.to_string() + " " + options.cache_dir + " " + options.dump_dir;
  for (const std::string& pass : options.skip_passes) text += " -" + pass;
  for (const GraphPass& pass : options.passes) text += " +" + pass.name;
  for (const auto& [node, first] : options.control_deps) text += " " + node;
  const std::size_t numbers[] = {static_cast<std::size_t>(options.threads),
                                 options.disk_cache,
                                 options.fuse,
                                 options.library,
                                 static_cast<std::size_t>(options.order),
                                 options.max_executables,
                                 static_cast<std::size_t>(options.scope),
                                 options.max_plans,
                                 options.check_plans,
                                 static_cast<std::size_t>(options.streams),
                                 static_cast<std::size_t>(options.specialise_after),
                                 options.cuda_graphs.has_value()};
  for (const std::size_t number : numbers) text += " " + std::to_string(number);
  return text;
}

struct OptionCase {
  std::string key;
  AnnotationValue value;
  AnnotationValue wrong;  ///< of another kind, or no value that there is
  std::function<void(const std::vector<std::string>& usual, const std::vector<std::string>& now)>
      check;
};

std::vector<OptionCase> cases() {
  using Kernels = std::vector<std::string>;
  return {
      {"fuse", false, "maybe",
       [](const Kernels& usual, const Kernels& now) {
         EXPECT_TRUE(any_has(usual, "attention") || any_has(usual, "softmax"));
         EXPECT_GT(now.size(), usual.size());
         for (const std::string& kernel : now)
           EXPECT_TRUE(nodes_in(kernel) == 1 || kernel.starts_with("library")) << kernel;
         EXPECT_FALSE(any_has(now, "attention"));
       }},
      {"library", false, 2,
       [](const Kernels& usual, const Kernels& now) {
         EXPECT_EQ(now == usual, !any_has(usual, "library"));
         EXPECT_FALSE(any_has(now, "library"));
       }},
      {"winograd", false, "no way",
       [](const Kernels& usual, const Kernels& now) { EXPECT_EQ(now, usual); }},
      {"passes", "dce", "dce,no-such-pass",
       [](const Kernels& usual, const Kernels& now) {
         EXPECT_FALSE(any_has(usual, "exp_1")) << "one of the two is merged with the other";
         EXPECT_TRUE(any_has(now, "exp_1"));
       }},
      {"max_kernel_nodes", 1, 0,
       [](const Kernels& usual, const Kernels& now) {
         EXPECT_GT(now.size(), usual.size());
         EXPECT_TRUE(std::ranges::count_if(now, [](const auto& k) { return nodes_in(k) == 1; }) >
                     3);
       }},
      {"on_error", "op_by_op", "shrug",
       [](const Kernels& usual, const Kernels& now) { EXPECT_EQ(now, usual); }},
  };
}

TEST(RegionOptions, A1_17_EachReachesItsUnitAndNoOther) {
  Engine usual = engine_of({});
  const Json plan = Json::parse(usual.plan_json(inputs()));
  for (const OptionCase& option : cases()) {
    SCOPED_TRACE(option.key);
    std::vector<AnnotationMap> seen;
    EngineOptions settings;
    settings.on_region_compile = [&](const RegionInfo& region) { seen.push_back(region.options); };
    Engine engine = engine_of({{option.key, option.value}}, settings);
    const std::string before = text_of(engine.options());
    const Json with = Json::parse(engine.plan_json(inputs()));
    ASSERT_EQ(seen.size(), 2u);
    EXPECT_EQ(seen[0].at(option.key).value, option.value.value);
    EXPECT_TRUE(seen[1].empty());
    option.check(kernels_of(plan, "a"), kernels_of(with, "a"));
    EXPECT_EQ(kernels_of(with, "b"), kernels_of(plan, "b"));
    EXPECT_EQ(kernels_of(with, ""), kernels_of(plan, ""));
    EXPECT_EQ(text_of(engine.options()), before);
    Engine after = engine_of({});
    EXPECT_EQ(kernels_of(Json::parse(after.plan_json(inputs())), "a"), kernels_of(plan, "a"));
  }
}

// What a unit asks for holds inside of it though the engine says otherwise, and there alone.
TEST(RegionOptions, AUnitsOptionGoesBeforeTheEngines) {
  for (const char* key : {"fuse", "library"}) {
    SCOPED_TRACE(key);
    EngineOptions settings;
    (std::string(key) == "fuse" ? settings.fuse : settings.library) = false;
    Engine usual = engine_of({});
    Engine off = engine_of({}, settings);
    Engine engine = engine_of({{key, true}}, settings);
    const Json plan = Json::parse(engine.plan_json(inputs()));
    const Json plan_off = Json::parse(off.plan_json(inputs()));
    EXPECT_EQ(kernels_of(plan, "a"), kernels_of(Json::parse(usual.plan_json(inputs())), "a"));
    for (const char* other : {"b", ""})
      EXPECT_EQ(kernels_of(plan, other), kernels_of(plan_off, other));
  }
}

// A compile that fails leaves the engine's options and those of the next compile as they were.
TEST(RegionOptions, A1_17_AFailedCompileLeavesEveryOptionAsItWas) {
  Engine usual = engine_of({});
  const Json plan = Json::parse(usual.plan_json(inputs()));
  for (const OptionCase& option : cases()) {
    SCOPED_TRACE(option.key);
    bool fails = true;
    std::vector<std::string> lines;
    EngineOptions settings;
    settings.log = [&](std::string_view line) { lines.emplace_back(line); };
    settings.on_region_compile = [&](const RegionInfo& region) {
      if (fails && region.id == "a") throw std::runtime_error("injected");
    };
    Engine engine = engine_of({{option.key, option.value}}, settings);
    const std::string before = text_of(engine.options());
    if (option.key == "on_error") {
      const Json with = Json::parse(engine.plan_json(inputs()));
      EXPECT_EQ(with["regions"][0]["fell_back"], true);
      EXPECT_EQ(with["regions"][1]["fell_back"], false);
      EXPECT_EQ(kernels_of(with, "b"), kernels_of(plan, "b"));
      EXPECT_EQ(lines.size(), 1u);
    } else {
      EXPECT_THROW(engine.plan_json(inputs()), std::runtime_error);
      EXPECT_EQ(engine.stats().kernels_compiled, 0u);
      fails = false;
      const Json with = Json::parse(engine.plan_json(inputs()));
      option.check(kernels_of(plan, "a"), kernels_of(with, "a"));
      EXPECT_EQ(kernels_of(with, "b"), kernels_of(plan, "b"));
    }
    EXPECT_EQ(text_of(engine.options()), before);
  }
}

// A value that an option does not take is named with its option, as an unknown option is, before anything is compiled;
// also where the unit is in the body of a branch.
TEST(RegionOptions, A1_16_WhatAnOptionDoesNotTakeIsNamedBeforeAnythingIsCompiled) {
  std::vector<OptionCase> wrong = cases();
  wrong.push_back({"bogus", 1, 1, {}});
  for (const OptionCase& option : wrong) {
    for (const bool nested : {false, true}) {
      SCOPED_TRACE(option.key + (nested ? ", nested" : ""));
      int compiles = 0;
      EngineOptions settings{.disk_cache = false};
      settings.on_region_compile = [&](const RegionInfo&) { ++compiles; };
      const auto last = [&option](const Tensor& x) {
        const Annotate scope{
            {"compile", AnnotationMap{{"options", AnnotationMap{{option.key, option.wrong}}}}}};
        return exp(x) * 2.0;
      };
      Engine engine(
          [&](const Tensor& x) {
            Tensor y;
            {
              const Annotate scope{{"compile", "first"}};
              y = tanh(x) + 1.0;
            }
            if (!nested) return last(y);
            return cond(
                greater(sum(y), 0.0), [&](const Tensor& t) { return last(t); },
                [](const Tensor& t) { return neg(t); }, y);
          },
          settings);
      const std::string before = text_of(engine.options());
      const std::vector<Tensor> one{Tensor::full(f32, {4}, 1)};
      try {
        engine.run(one);
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        const std::string key = option.key == "passes" ? "no-such-pass" : option.key;
        EXPECT_THAT(error.what(), HasSubstr(key));
        EXPECT_NE(dynamic_cast<const OptionError*>(&error), nullptr) << error.what();
      }
      EXPECT_EQ(compiles, 0);
      EXPECT_EQ(engine.stats().kernels_compiled, 0u);
      EXPECT_EQ(text_of(engine.options()), before);
    }
  }
}

/// HEDDLE_WINOGRAD as long as it lives.
class WinogradIs {
 public:
  explicit WinogradIs(const char* value) {
    if (const char* old = std::getenv("HEDDLE_WINOGRAD")) old_ = old;
    ::setenv("HEDDLE_WINOGRAD", value, 1);
  }
  ~WinogradIs() {
    if (old_)
      ::setenv("HEDDLE_WINOGRAD", old_->c_str(), 1);
    else
      ::unsetenv("HEDDLE_WINOGRAD");
  }

 private:
  std::optional<std::string> old_;
};

// Plans do not tell the algorithm of a convolution; its rounding does.
TEST(RegionOptions, WinogradIsThatOfTheUnit) {
  const auto results = [](const AnnotationMap& options) {
    Engine engine = engine_of(options);
    return engine.run(inputs());
  };
  const std::vector<Tensor> usual = results({});
  const std::vector<Tensor> without = results({{"winograd", false}});
  const auto bits = [](const std::vector<Tensor>& all, std::size_t k) {
    return all[k].to_doubles();
  };
  EXPECT_EQ(bits(without, 3), bits(usual, 3)) << "the other unit";
  EXPECT_EQ(bits(without, 6), bits(usual, 6)) << "what is in none";
  const WinogradIs off("0");
  const std::vector<Tensor> nowhere = results({});
  EXPECT_EQ(bits(without, 0), bits(nowhere, 0));
  EXPECT_EQ(bits(results({{"winograd", true}}), 0), bits(usual, 0));
  if (bits(nowhere, 0) == bits(usual, 0))
    GTEST_SKIP() << "this machine uses Winograd's algorithm for none of them";
}

}  // namespace
}  // namespace heddle::testing
