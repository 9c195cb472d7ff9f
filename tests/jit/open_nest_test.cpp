// Nests whose numbers became parameters do the same, and those that differ in numbers alone are equal.
#include "jit/open_nest.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "ir/text.h"
#include "jit/compile_service.h"
#include "tests/jit/lower_support.h"

namespace heddle::test {
namespace {

jit::OpenNest opened(const jit::Nest& nest) {
  return jit::OpenNest::of(std::make_shared<const jit::Nest>(nest));
}

std::int32_t run_compiled(const jit::Nest& nest, std::span<const InterpreterBuffer> buffers,
                          const std::vector<std::int64_t>& sizes) {
  const jit::CpuKernelPtr kernel = jit::CompileService::shared().compile(nest);
  std::vector<void*> addresses;
  for (const InterpreterBuffer& buffer : buffers) addresses.push_back(buffer.data);
  const auto bytes = static_cast<std::size_t>(kernel->scratch_bytes.evaluate_sizes(sizes));
  const std::unique_ptr<void, decltype(&std::free)> scratch(
      std::aligned_alloc(64, (bytes / 64 + 1) * 64), &std::free);
  std::int32_t status = 0;
  kernel->entry(addresses.data(), sizes.data(), 0, nest.parallel_extent.evaluate_sizes(sizes),
                scratch.get(), &status);
  return status;
}

/// Graphs of sizes that matter: tiles and what is left of them, reductions, parts, strides, masks, integers.
std::vector<std::string> graphs(const std::string& rows, const std::string& columns) {
  const std::string type = "f32[" + rows + ", " + columns + "]";
  const auto graph = [&](const std::string& body, const std::string& more = "") {
    return "graph @main(%x: " + type + more + ") {\n" + body + "  return %y\n}\n";
  };
  return {
      graph("  %s = mul(%x, %x)\n  %y = reduce_sum(%s) {axes = [1], keepdims = false}\n"),
      graph("  %e = exp(%x)\n  %y = reduce_sum(%e) {axes = [0], keepdims = false}\n"),
      graph("  %t = permute(%x) {perm = [1, 0]}\n  %u = add(%t, 1.0: f32)\n  %y = clone(%u)\n"),
      graph("  %y = softmax(%x) {axis = 1}\n"),
      graph("  %m = reduce_max(%x) {axes = [1], keepdims = true}\n  %y = sub(%x, %m)\n"),
      graph("  %c = concat(%x, %z) {axis = 1}\n  %y = neg(%c)\n", ", %z: " + type),
      graph("  %i = convert(%x) {dtype = i32}\n  %z = sub(%i, 77: i32)\n"
            "  %y = reduce_sum(%z) {axes = [1], keepdims = false}\n"),
      graph("  %y = argmax(%x) {axis = 1, keepdims = false}\n"),
      graph("  %n = const 2: f32\n  %p = pad(%x, %n) {low = [3, 0], high = [1, 20]}\n  %y = "
            "exp(%p)\n"),
      graph(
          "  %s = slice(%x) {start = [1, 2], limit = [3, 17], stride = [2, 3]}\n  %y = exp(%s)\n"),
  };
}

TEST(OpenNest, DoesTheSame) {
  for (const auto& [rows, columns] :
       {std::pair("40", "300"), std::pair("3", "17"), std::pair("200", "1000")}) {
    for (const std::string& text : graphs(rows, columns)) {
      SCOPED_TRACE(text);
      const ir::Graph graph = ir::parse(text);
      int changed = 0;
      const auto runner = [&](const jit::Nest& nest, std::span<const InterpreterBuffer> buffers,
                              std::span<const std::int64_t> sizes) {
        const jit::OpenNest open = opened(nest);
        jit::check(*open.nest);
        std::vector<std::int64_t> all(sizes.begin(), sizes.end());
        all.insert(all.end(), open.sizes.begin(), open.sizes.end());
        EXPECT_EQ(open.nest->size_count, all.size());
        changed += open.sizes.empty() ? 0 : 1;
        return interpret(*open.nest, buffers, all);
      };
      expect_program_right(graph, lowered(graph), random_arguments(graph, {}), {.runner = runner},
                           1e-5);
      EXPECT_GE(changed, 1);
    }
  }
}

/// What is compiled for them does so, too.
TEST(OpenNest, IsCompiled) {
  if (!jit::CompileService::shared().can_compile()) GTEST_SKIP() << "no code generation";
  for (const std::string& text : graphs("40", "300")) {
    SCOPED_TRACE(text);
    const ir::Graph graph = ir::parse(text);
    const auto runner = [&](const jit::Nest& nest, std::span<const InterpreterBuffer> buffers,
                            std::span<const std::int64_t> sizes) {
      const jit::OpenNest open = opened(nest);
      std::vector<std::int64_t> all(sizes.begin(), sizes.end());
      all.insert(all.end(), open.sizes.begin(), open.sizes.end());
      return run_compiled(*open.nest, buffers, all);
    };
    expect_program_right(graph, lowered(graph), random_arguments(graph, {}), {.runner = runner},
                         1e-5);
  }
}

std::vector<std::string> keys(const std::string& text) {
  std::vector<std::string> keys;
  for (const auto& kernel : lowered(ir::parse(text)).kernels)
    if (kernel.nest) keys.push_back(jit::structural_text(*opened(*kernel.nest).nest));
  return keys;
}

TEST(OpenNest, OfOtherSizesIsEqual) {
  const std::vector<std::string> some = graphs("300", "700"), others = graphs("290", "690");
  constexpr std::size_t kAlike = 8;  // the rest is cut into other numbers of parts
  for (std::size_t k = 0; k < kAlike; ++k) EXPECT_EQ(keys(some[k]), keys(others[k])) << some[k];
  // Small numbers, and floating ones, stay.
  EXPECT_NE(keys(some[2]), keys(graphs("300", "7")[2]));
}

TEST(OpenNest, LargeOnesStayAsTheyAre) {
  for (const auto& kernel : lowered(ir::parse(graphs("1100", "1000")[0])).kernels)
    EXPECT_TRUE(opened(*kernel.nest).sizes.empty());
  const ir::Graph product = ir::parse(
      "graph @main(%x: f32[40, 50], %w: f32[50, 60]) {\n  %y = matmul(%x, %w)\n  return %y\n}\n");
  for (const auto& kernel : lowered(product).kernels) {
    const jit::OpenNest open = opened(*kernel.nest);
    EXPECT_TRUE(open.sizes.empty() || !kernel.nest->product);
  }
}

}  // namespace
}  // namespace heddle::test
