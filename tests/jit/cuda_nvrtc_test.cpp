// Real NVRTC takes every kernel of the corpus.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <map>
#include <optional>

#include "device/cuda/nvrtc.h"
#include "heddle/error.h"
#include "jit/cuda/emit.h"
#include "jit/cuda/prelude.h"
#include "tests/jit/cuda_corpus.h"
#include "tests/jit/of_architecture.h"
#include "tests/jit/one_product.h"
#include "tests/jit/ptxas_report.h"

namespace heddle::tests {
namespace {

using device::cuda::Nvrtc;

/// NVRTC if this machine has it.
const Nvrtc* nvrtc() {
  static const std::unique_ptr<Nvrtc> library = []() -> std::unique_ptr<Nvrtc> {
    try {
      return std::make_unique<Nvrtc>();
    } catch (const DeviceError&) {
      return nullptr;
    }
  }();
  return library.get();
}

/// Kernels behind one prelude, which saves NVRTC's start for each.
std::string text_of(const std::vector<CorpusCase>& cases) {
  std::string kernels;
  for (const CorpusCase& one : cases) kernels += jit::cuda::emit_cuda(one.nest).kernel + "\n";
  return jit::cuda::prelude_for(kernels) + kernels;
}

class CudaNvrtc : public OfArchitecture {
 protected:
  void compile(const std::vector<CorpusCase>& cases) {
    if (nvrtc() == nullptr) GTEST_SKIP() << "libnvrtc is not on this machine";
    const std::string arch = GetParam();
    if (!nvrtc()->supports(std::stoi(arch.substr(3))))
      GTEST_SKIP() << nvrtc()->version() << " makes no code for " << arch;
    const auto compiled =
        nvrtc()->compile_cubin(text_of(cases), "corpus", arch, {"--ptxas-options=-O0"});
    EXPECT_EQ(compiled.log, "");
    ASSERT_GT(compiled.image.size(), 4u);
    EXPECT_EQ(std::string(compiled.image.data(), 4), "\177ELF");
  }
};

TEST_P(CudaNvrtc, CompilesScalars) { compile(scalar_corpus()); }
TEST_P(CudaNvrtc, CompilesLoops) { compile(loop_corpus()); }

/// Rows in registers, tiles in shared memory, several columns a thread: none keeps anything in memory for want of registers.
TEST_P(CudaNvrtc, CompilesRowsTilesAndColumns) {
  if (nvrtc() == nullptr) GTEST_SKIP() << "libnvrtc is not on this machine";
  const std::string arch = GetParam();
  if (!nvrtc()->supports(std::stoi(arch.substr(3)))) GTEST_SKIP() << "NVRTC makes no such code";
  std::string kernels;
  std::size_t count = 0;
  for (const char* text : {
           "graph @rows(%x: bf16[s0, 4096], %y: f32[s0, 4096]) {\n  %a = softmax(%x) {axis = 1}\n"
           "  %b = softmax(%y) {axis = 1}\n  return %a, %b\n}\n",
           "graph @begun(%x: f16[s0+512], %y: f16[s0]) {\n"
           "  %p = slice(%x) {start = [s0], limit = [s0+512], stride = [1]}\n"
           "  %r = reshape(%p) {sizes = [1, 512]}\n  %a = softmax(%r) {axis = 1}\n  return %a\n}\n",
           "graph @tiles(%x: f32[4096, 4096], %y: bf16[256, 128]) {\n"
           "  %a = permute(%x) {perm = [1, 0]}\n  %b = permute(%y) {perm = [1, 0]}\n"
           "  return %a, %b\n}\n",
           "graph @columns(%x: bf16[262144, 64], %y: i8[524288, 64]) {\n"
           "  %a = reduce_sum(%x) {axes = [0], keepdims = false}\n"
           "  %b = reduce_max(%y) {axes = [0], keepdims = false}\n  return %a, %b\n}\n",
       })
    for (const auto& kernel : lowered_for_cuda(ir::parse(text)).kernels) {
      if (!kernel.nest) continue;
      jit::Nest nest = *kernel.nest;
      nest.name += "_" + std::to_string(count++);
      kernels += jit::cuda::emit_cuda(nest).kernel + "\n";
    }
  EXPECT_GE(count, 8u);
  for (const char* way : {"_rows<true>", "columns_", "turn"})
    EXPECT_NE(kernels.find(way), std::string::npos) << way;
  const auto compiled = nvrtc()->compile_cubin(jit::cuda::prelude_for(kernels) + kernels, "rows",
                                               arch, {"--ptxas-options=-v"});
  // Functions of the compiler's own that are called are told of too.
  std::size_t told = 0;
  for (std::size_t at = 0; (at = compiled.log.find("Function properties", at)) != std::string::npos;
       ++at)
    ++told;
  EXPECT_GE(told, count);
  expect_few_spills(compiled.log, told, 0);
}

/// Rows of 128 are ordered by comparing each element with all: NVRTC wrote that loop out, and kept all of 1 KB for the next
/// element of the thread. Of longer ones the assembler spilled, so that all threads that a multiprocessor may have would fit.
TEST_P(CudaNvrtc, SortsKeepToTheRegistersOfAThread) {
  if (nvrtc() == nullptr) GTEST_SKIP() << "libnvrtc is not on this machine";
  const std::string arch = GetParam();
  if (!nvrtc()->supports(std::stoi(arch.substr(3)))) GTEST_SKIP() << "NVRTC makes no such code";
  for (const char* rows : {"i64[64, 128]", "i64[s0, 512]", "f32[s0, s1]", "bf16[s0, 9000]"}) {
    SCOPED_TRACE(rows);
    const jit::Program program =
        lowered_for_cuda(ir::parse("graph @main(%x: " + std::string(rows) +
                                   ") {\n  %v, %i = sort(%x) {axis = 1}\n  return %v, %i\n}"));
    std::string kernels;
    std::size_t sorts = 0;
    for (std::size_t k = 0; k < program.kernels.size(); ++k) {
      jit::Nest nest = *program.kernels[k].nest;
      nest.name += "_" + std::to_string(k);
      if (!nest.name.starts_with("sort")) continue;
      kernels += jit::cuda::emit_cuda(nest).kernel + "\n";
      ++sorts;
    }
    ASSERT_GE(sorts, 1u);
    const auto compiled = nvrtc()->compile_cubin(jit::cuda::prelude_for(kernels) + kernels, "sort",
                                                 arch, {"--ptxas-options=-v"});
    expect_few_spills(compiled.log, sorts, 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Arch, CudaNvrtc, ::testing::Values("sm_80", "sm_90a", "sm_100"),
                         [](const auto& arch) { return std::string(arch.param); });

TEST(CudaNvrtc, SaysWhatIsWrongInTheText) {
  if (nvrtc() == nullptr) GTEST_SKIP() << "libnvrtc is not on this machine";
  try {
    nvrtc()->compile_cubin("extern \"C\" __global__ void f() { undeclared = 1; }", "f", "sm_80");
    FAIL() << "compiled";
  } catch (const CompileError& error) {
    EXPECT_NE(std::string(error.what()).find("undeclared"), std::string::npos) << error.what();
  }
}

TEST(CudaNvrtc, NamesThePathThatDoesNotLoad) {
  try {
    const Nvrtc missing("/nonexistent/libnvrtc.so");
    FAIL() << "loaded";
  } catch (const DeviceError& error) {
    EXPECT_NE(std::string(error.what()).find("/nonexistent/libnvrtc.so"), std::string::npos);
  }
}

/// Whatever the loader would have found: they are there before a compile asks for them.
TEST(CudaNvrtc, LoadsTheBuiltinsBesideIt) {
  if (nvrtc() == nullptr) GTEST_SKIP() << "libnvrtc is not on this machine";
  const std::string version =
      std::to_string(nvrtc()->major()) + "." + std::to_string(nvrtc()->minor());
  std::ifstream maps("/proc/self/maps");
  std::string line;
  std::filesystem::path own;
  std::string builtins;
  while (std::getline(maps, line)) {
    const std::size_t at = line.find('/');
    if (at == std::string::npos) continue;
    const std::filesystem::path file = line.substr(at);
    if (file.filename().string().starts_with("libnvrtc.so")) own = file;
    if (file.filename() == "libnvrtc-builtins.so." + version) builtins = file.string();
  }
  ASSERT_FALSE(own.empty());
  const auto beside = own.parent_path() / ("libnvrtc-builtins.so." + version);
  if (!std::filesystem::exists(beside)) GTEST_SKIP() << beside << " is not there";
  EXPECT_EQ(builtins, std::filesystem::canonical(beside).string());
}

TEST(CudaText, IncludesNothing) {
  EXPECT_EQ(text_of(corpus()).find("#include"), std::string::npos);
  EXPECT_EQ(jit::cuda::prelude_text().find("#include"), std::string::npos);
}

/// For scripts/cuda_report, which tells what they take of a device.
TEST(CudaText, GoesToTheDumpFolder) {
  const char* folder = std::getenv("HEDDLE_DUMP_DIR");
  if (folder == nullptr) GTEST_SKIP() << "HEDDLE_DUMP_DIR says where to";
  for (const CorpusCase& one : corpus()) {
    std::ofstream file(std::filesystem::path(folder) / (one.nest.name + ".cu"));
    EXPECT_TRUE(file << jit::cuda::emit_cuda(one.nest).text);
  }
}

TEST(CudaText, KernelsHaveNoInlineAssembly) {
  for (const CorpusCase& one : corpus())
    EXPECT_EQ(jit::cuda::emit_cuda(one.nest).kernel.find("asm"), std::string::npos);
}

TEST(CudaText, HoldsOnlyTheNeededPrelude) {
  for (const CorpusCase& one : corpus()) {
    if (one.nest.name != "indices") continue;
    const std::string text = jit::cuda::emit_cuda(one.nest).text;
    EXPECT_NE(text.find("hd_floordiv"), std::string::npos);
    EXPECT_EQ(text.find("hd_block_reduce"), std::string::npos);
    EXPECT_EQ(text.find("hd_f16"), std::string::npos);
  }
}

}  // namespace
}  // namespace heddle::tests
