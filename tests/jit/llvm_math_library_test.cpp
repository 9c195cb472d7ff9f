// Vector math as functions that kernels share: their names, where they come from, and that every width computes the
// same bits.
#include <barrier>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <thread>
#include <vector>

#include "heddle/error.h"
#include "jit/cpu/llvm/codegen.h"
#include "jit/cpu/llvm/math_library.h"
#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {

using cpu::MathFunction;
using ir::ScalarOp;
using tests::CompiledNest;

/// out[i] = second(first(in[i])) for i < count, the same count for every size: two functions, so that both are called.
Nest chain_nest(ScalarOp first, ScalarOp second, std::int64_t count) {
  NestBuilder b("chain");
  const auto x = b.add_global(f32, count);
  const auto y = b.add_global(f32, count);
  b.set_parallel(b.new_axis(1), 1);
  const Symbol i = b.new_axis(count);
  b.begin_for(i, count, ForStmt::Kind::Vector);
  b.store(y, i, b.apply(second, {b.apply(first, {b.load(x, i)})}));
  b.end_for();
  return b.finish();
}

TEST(MathLibrary, SymbolsNameOneFunctionEach) {
  const MathFunction function{ScalarOp::Tanh, f32, 4, 64};
  EXPECT_EQ(function.symbol(), "heddle_math_f32_tanh_4x64");
  const auto parsed = MathFunction::of_symbol("heddle_math_f32_tanh_4x64");
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->op, ScalarOp::Tanh);
  EXPECT_EQ(parsed->dtype, f32);
  EXPECT_EQ(parsed->vectors, 4u);
  EXPECT_EQ(parsed->vector_bytes, 64u);
  const auto wide = MathFunction::of_symbol("heddle_math_f64_tanh_4x64");
  ASSERT_TRUE(wide.has_value());
  EXPECT_EQ(wide->dtype, f64);
  for (const char* other :
       {"heddle_f32_tanh", "heddle_math_f32_tanh_3x64", "heddle_math_f32_tanh_16x64",
        "heddle_math_f32_tanh_4x16", "heddle_math_f32_sqrt_1x64", "heddle_math_f64_sqrt_1x64",
        "heddle_math_tanh_4x64", "tanhf"})
    EXPECT_FALSE(MathFunction::of_symbol(other).has_value()) << other;
}

TEST(MathLibrary, AFunctionThatIsNotThereIsAnErrorThatNamesIt) {
  try {
    cpu::compile_math_object("heddle_math_f32_sqrt_1x64", cpu::host_target());
    FAIL() << "no error";
  } catch (const CompileError& error) {
    EXPECT_NE(std::string(error.what()).find("heddle_math_f32_sqrt_1x64"), std::string::npos)
        << error.what();
  }
}

TEST(MathLibrary, KernelsCallItInsteadOfRepeatingItsCode) {
  const cpu::CodegenTarget target = cpu::host_target(32);
  if (target.vector_bytes < 32) GTEST_SKIP() << "vectors of 16 bytes have their math in place";
  cpu::CodegenTexts texts;
  cpu::compile_object(chain_nest(ScalarOp::Erf, ScalarOp::Tanh, 100), target, &texts);
  for (const char* symbol : {"@heddle_math_f32_erf_8x32(", "@heddle_math_f32_erf_1x32(",
                             "@heddle_math_f32_tanh_8x32(", "@heddle_math_f32_tanh_1x32("})
    EXPECT_NE(texts.ir.find(symbol), std::string::npos) << symbol << "\n" << texts.ir;
  EXPECT_EQ(texts.ir.find("@llvm.fma"), std::string::npos) << texts.ir;
}

// JITLink of LLVM 19 turns `call *f@GOTPCREL(%rip)` into a call of a wrong address where f lies in the lowest 4 GiB, as it
// does in programs at fixed addresses and under valgrind.
TEST(MathLibrary, KernelsCallItDirectly) {
  cpu::CodegenTexts texts;
  texts.want_assembly = true;
  cpu::compile_object(chain_nest(ScalarOp::Erf, ScalarOp::Tanh, 100), cpu::host_target(), &texts);
  EXPECT_EQ(texts.assembly.find("@GOTPCREL"), std::string::npos) << texts.assembly;
}

TEST(MathLibrary, EveryWidthGivesTheSameBits) {
  std::vector<float> x;
  for (int k = 0; k < 2048; ++k) x.push_back(static_cast<float>(k - 1024) * 0.013f);
  const float infinity = std::numeric_limits<float>::infinity();
  const float specials[] = {
      0.0f,   -0.0f,  infinity, -infinity, std::numeric_limits<float>::quiet_NaN(),
      1e-42f, 100.0f, -100.0f};
  std::copy(std::begin(specials), std::end(specials), x.begin() + 64);
  for (ScalarOp op : {ScalarOp::Exp, ScalarOp::Log, ScalarOp::Tanh, ScalarOp::Sigmoid,
                      ScalarOp::Erf, ScalarOp::Expm1, ScalarOp::Log1p, ScalarOp::Log2}) {
    std::vector<float> want(x.size());
    CompiledNest(chain_nest(op, ScalarOp::Sigmoid, 2048)).run({x.data(), want.data()});
    // 16, 32, 64 and 128 elements at a time, and a tail.
    for (std::int64_t count : {16, 32, 64, 128, 7}) {
      const CompiledNest code(chain_nest(op, ScalarOp::Sigmoid, count));
      for (std::size_t from = 0; from + 128 <= 256; from += 16) {
        std::vector<float> got(static_cast<std::size_t>(count));
        code.run({x.data() + from, got.data()});
        EXPECT_EQ(std::memcmp(got.data(), want.data() + from, got.size() * sizeof(float)), 0)
            << ir::name_of(op) << ", " << count << " elements from " << from;
      }
    }
  }
}

class MemoryStore final : public cpu::ObjectStore {
 public:
  std::optional<std::string> find(const std::string& key) override {
    ++asked;
    const auto found = objects.find(key);
    return found == objects.end() ? std::nullopt : std::optional(found->second);
  }
  void store(const std::string& key, const std::string& object) override { objects[key] = object; }
  std::string place() const override { return place_; }

  std::map<std::string, std::string> objects;
  int asked = 0;

 private:
  static inline int count_ = 0;
  std::string place_ = std::to_string(++count_);
};

void find_and_store(const cpu::CodegenTarget& target) {
  const auto load = [&](ScalarOp second, MemoryStore& store) {
    const std::string object = cpu::compile_object(chain_nest(ScalarOp::Log2, second, 8), target);
    return cpu::load_object(object, target, &store);
  };
  const auto key_of = [&](const std::string& symbol) {
    return "heddle math\n" + cpu::codegen_version() + "\n" + target.key() + "\n" + symbol + "\n";
  };
  MemoryStore store;
  const std::string given = cpu::compile_math_object("heddle_math_f32_exp2_1x32", target);
  EXPECT_EQ(given, cpu::compile_math_object("heddle_math_f32_exp2_1x32", target));
  store.objects[key_of("heddle_math_f32_exp2_1x32")] = given;
  const cpu::LoadedObject first = load(ScalarOp::Exp2, store);
  EXPECT_EQ(store.asked, 2);
  ASSERT_EQ(store.objects.size(), 2u);
  EXPECT_EQ(store.objects.count(key_of("heddle_math_f32_log2_1x32")), 1u);

  float x[8] = {1, 2, 4, 8, 0.5f, 1, 2, 4};
  float y[8] = {};
  void* const buffers[] = {x, y};
  std::int32_t status = 0;
  first.entry(buffers, nullptr, 0, 1, nullptr, &status);
  for (int k = 0; k < 8; ++k) EXPECT_FLOAT_EQ(y[k], x[k]) << k;

  // Linked once, it is asked for no more.
  load(ScalarOp::Exp2, store);
  EXPECT_EQ(store.asked, 2);
}

/// In a process of its own, which has linked no function yet.
TEST(MathLibraryDeathTest, FunctionsComeFromTheStoreOrGoThere) {
  const cpu::CodegenTarget target = cpu::host_target(32);
  if (target.vector_bytes < 32) GTEST_SKIP() << "vectors of 16 bytes have their math in place";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto check = [&] {
    find_and_store(target);
    std::exit(HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(check(), ::testing::ExitedWithCode(0), "");
}

/// Functions of one name for several processors are several; and what an engine of another folder has linked before is in each folder.
TEST(MathLibrary, EachTargetHasItsOwnInEachStore) {
  if (cpu::host_target(32).vector_bytes < 32) GTEST_SKIP() << "the processor has no AVX2";
  std::vector<float> x(100);
  for (std::size_t k = 0; k < x.size(); ++k) x[k] = 0.01f * static_cast<float>(k + 1);
  std::vector<std::vector<float>> results;
  for (const char* name : {"x86-64-v3", "haswell", "x86-64-v3"}) {
    const cpu::CodegenTarget target = cpu::named_target(name);
    const std::string object =
        cpu::compile_object(chain_nest(ScalarOp::Log1p, ScalarOp::Tanh, 100), target);
    MemoryStore store;
    const cpu::LoadedObject code = cpu::load_object(object, target, &store);
    EXPECT_GE(store.objects.size(), 2u) << name;
    for (const auto& [key, function] : store.objects)
      EXPECT_NE(key.find(target.key()), std::string::npos) << key;
    void* buffers[] = {x.data(), results.emplace_back(x.size(), -7.0f).data()};
    std::int32_t status = 0;
    code.entry(buffers, nullptr, 0, 1, nullptr, &status);
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

/// Threads that link kernels with a function in common run it when each has linked its own: none may find the function's code half
/// in place. Each function can be linked once in a process, so that this is worth most in a process of its own.
TEST(MathLibrary, AFunctionIsInPlaceForAllWhoNeedItAtOnce) {
  constexpr int kThreads = 4;
  std::vector<float> x(100);
  for (std::size_t k = 0; k < x.size(); ++k) x[k] = 0.01f * static_cast<float>(k);
  for (const std::int64_t vector_bytes : {64, 32, 16}) {
    const cpu::CodegenTarget target = cpu::host_target(vector_bytes);
    for (const ScalarOp op : {ScalarOp::Exp, ScalarOp::Log, ScalarOp::Tanh, ScalarOp::Sigmoid,
                              ScalarOp::Erf, ScalarOp::Sin, ScalarOp::Cos, ScalarOp::Atan}) {
      const std::string object = cpu::compile_object(chain_nest(op, ScalarOp::Abs, 100), target);
      std::barrier together(kThreads);
      std::vector<std::vector<float>> results(kThreads, std::vector<float>(x.size(), -7));
      std::vector<std::thread> threads;
      for (std::vector<float>& y : results)
        threads.emplace_back([&] {
          together.arrive_and_wait();
          const cpu::LoadedObject code = cpu::load_object(object, target);
          void* buffers[] = {x.data(), y.data()};
          std::int32_t status = 0;
          code.entry(buffers, nullptr, 0, 1, nullptr, &status);
        });
      for (std::thread& thread : threads) thread.join();
      for (const std::vector<float>& y : results) EXPECT_EQ(y, results[0]);
      EXPECT_NE(results[0].back(), -7);
    }
  }
}

}  // namespace
}  // namespace heddle::jit
