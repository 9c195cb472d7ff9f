// The processors that code is made for.
#include <gtest/gtest.h>
#include <string>

#include "heddle/error.h"
#include "jit/cpu/llvm/codegen.h"

namespace heddle::jit {
namespace {

using cpu::CodegenTarget;
using cpu::has_feature;
using cpu::host_target;
using cpu::named_target;

#if defined(__x86_64__)

TEST(CodegenTargets, ByNameHaveItsInstructionsAlone) {
  const CodegenTarget host = host_target();
  if (host.vector_bytes < 32) GTEST_SKIP() << "the processor has no AVX2";
  const CodegenTarget avx2 = named_target("x86-64-v3");
  EXPECT_EQ(avx2.vector_bytes, 32);
  EXPECT_TRUE(has_feature(avx2, "fma"));
  EXPECT_FALSE(has_feature(avx2, "avx512f"));
  EXPECT_FALSE(has_feature(avx2, "rdrnd")) << "which some machines have";
  EXPECT_EQ(avx2.key().find(host.cpu), std::string::npos);
  EXPECT_EQ(avx2.features.find("512"), std::string::npos) << "a word that only some hosts know";
  EXPECT_EQ(named_target("x86-64-v3", 16).vector_bytes, 16);
  if (host.vector_bytes < 64) return;
  const CodegenTarget avx512 = named_target("x86-64-v4");
  EXPECT_EQ(avx512.vector_bytes, 64);
  EXPECT_FALSE(cpu::has_bf16_dot(avx512));
  EXPECT_FALSE(cpu::has_amx(avx512));
}

/// The host by its own name is the host, but for what tensors have no use for.
TEST(CodegenTargets, TheHostByItsName) {
  const CodegenTarget host = host_target();
  CodegenTarget named;
  try {
    named = named_target(host.cpu);
  } catch (const OptionError& error) {
    GTEST_SKIP() << "a virtual machine that hides instructions: " << error.what();
  }
  EXPECT_EQ(named.cpu, host.cpu);
  EXPECT_EQ(named.vector_bytes, host.vector_bytes);
  for (const char* feature : {"avx2", "avx512f", "avx512vnni", "avx512bf16", "gfni", "bmi2"}) {
    if (has_feature(host, feature) && !has_feature(named, feature))
      GTEST_SKIP() << "a virtual machine that names another processor, without " << feature;
    EXPECT_EQ(has_feature(named, feature), has_feature(host, feature)) << feature;
  }
  EXPECT_EQ(cpu::has_fast_bf16_dot(named), cpu::has_fast_bf16_dot(host));
}

TEST(CodegenTargets, ThatTheHostIsNot) {
  const auto error_of = [](const std::string& name) -> std::string {
    try {
      named_target(name);
    } catch (const OptionError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(error_of("z80"),
            "EngineOptions::cpu, or HEDDLE_CPU: expected a 64-bit processor by LLVM's name, such "
            "as x86-64-v3, x86-64-v4 "
            "or znver4, got z80");
  EXPECT_NE(error_of("i686"), "no error") << "of 32 bits";
  EXPECT_EQ(error_of("x86-64-v2"),
            "EngineOptions::cpu, or HEDDLE_CPU: expected a processor that converts numbers of 16 "
            "bits (F16C), as x86-64-v3 "
            "does, got x86-64-v2");
  EXPECT_NE(error_of("knl").find("AVX-512 for vectors of all lengths"), std::string::npos);
  // No processor has all that both makers have.
  const std::string intel = error_of("diamondrapids");
  const std::string amd = error_of("bdver2");
  EXPECT_TRUE(intel.find("which lacks ") != std::string::npos ||
              amd.find("which lacks ") != std::string::npos)
      << intel << "\\n"
      << amd;
}

/// Matrix registers that nobody asks for need not be there.
TEST(CodegenTargets, WithoutMatrixRegisters) {
  try {
    const CodegenTarget target = named_target("sapphirerapids", 0, false);
    EXPECT_FALSE(cpu::has_amx(target));
  } catch (const OptionError& error) {
    EXPECT_EQ(std::string(error.what()).find("lacks amx"), std::string::npos) << error.what();
  }
}

#else

TEST(CodegenTargets, HaveNamesOnOtherProcessors) {
  EXPECT_THROW(named_target("x86-64-v3"), OptionError);
}

#endif

}  // namespace
}  // namespace heddle::jit
