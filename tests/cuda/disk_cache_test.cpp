// Compiled CUDA kernels on disk: a second engine, and a second process, compile nothing.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>

#include "jit/kernel_cache.h"
#include "tests/cuda/support.h"
#include "tests/jit/folder_test.h"

namespace heddle::testing {
namespace {

namespace fs = std::filesystem;

/// Three kernels.
std::vector<Tensor> callable(const Tensor& x) {
  return {softmax(matmul(x, x), -1), cumsum(exp(x), 0)};
}

class CudaDiskCache : public tests::FolderTest {
 protected:
  struct Outcome {
    std::vector<double> values;
    EngineStats stats;
  };
  /// An engine on a device that is opened for it, so that no kernel is in memory.
  Outcome run(bool disk_cache = true) const { return run_in(folder_, disk_cache); }
  static Outcome run_in(const std::string& folder, bool disk_cache) {
    EngineOptions options = on_cuda();
    options.cache_dir = folder;
    options.disk_cache = disk_cache;
    options.autotune = false;  // whose verdicts are entries, too
    Engine engine(callable, options);
    Outcome outcome;
    for (const Tensor& output : engine.run({counted(f32, {5, 5})}))
      for (const double value : output.to_doubles()) outcome.values.push_back(value);
    outcome.stats = engine.stats();
    return outcome;
  }
  std::vector<fs::path> entries() const {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(folder_)) paths.push_back(entry.path());
    return paths;
  }
  struct Image {
    fs::path path;
    std::string key;
  };
  /// Those of `entries()` that hold compiled programs: as many as threads compiled.
  std::vector<Image> images() const {
    constexpr std::size_t kHeaderBytes = 48;
    constexpr std::size_t kKeyLengthAt = 16;
    std::vector<Image> found;
    for (const fs::path& path : entries()) {
      const std::string bytes = read(path.string());
      if (bytes.find("heddle CUDA image\n") != kHeaderBytes) continue;
      std::uint64_t key_bytes = 0;
      std::memcpy(&key_bytes, bytes.data() + kKeyLengthAt, sizeof key_bytes);
      found.push_back({path, bytes.substr(kHeaderBytes, key_bytes)});
    }
    return found;
  }
};

TEST_F(CudaDiskCache, ASecondEngineCompilesNothing) {
  const Outcome first = run();
  EXPECT_GE(first.stats.kernels_compiled, 3u);
  EXPECT_EQ(first.stats.disk_hits, 0u);
  // An entry a kernel, of the product one for each variant: what follows a library is one where there is the library.
  if (on_simulator())
    EXPECT_EQ(files() - images().size(), first.stats.kernels_compiled + 2);
  else
    EXPECT_GE(files() - images().size(), first.stats.kernels_compiled + 2);
  const Outcome second = run();
  EXPECT_EQ(second.stats.kernels_compiled, 0u);
  EXPECT_EQ(second.stats.disk_hits, first.stats.kernels_compiled);
  EXPECT_EQ(second.values, first.values);
}

TEST_F(CudaDiskCache, NothingIsKeptWhenItIsOff) {
  EXPECT_GE(run(false).stats.kernels_compiled, 3u);
  EXPECT_EQ(files(), 0u);
  EXPECT_GE(run(false).stats.kernels_compiled, 3u);
}

/// What the second process of the next test does.
TEST_F(CudaDiskCache, InAProcessOfItsOwn) {
  const char* folder = std::getenv("HEDDLE_TEST_CUDA_CACHE");
  if (folder == nullptr) GTEST_SKIP() << "is run by ASecondProcessCompilesNothing";
  const Outcome outcome = run_in(folder, true);
  EXPECT_EQ(outcome.stats.kernels_compiled, 0u);
  EXPECT_GE(outcome.stats.disk_hits, 3u);
}

TEST_F(CudaDiskCache, ASecondProcessCompilesNothing) {
  run();
  ::setenv("HEDDLE_TEST_CUDA_CACHE", folder_.c_str(), 1);
  const std::string command = fs::read_symlink("/proc/self/exe").string() +
                              " --gtest_filter=CudaDiskCache.InAProcessOfItsOwn > /dev/null 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0);
  ::unsetenv("HEDDLE_TEST_CUDA_CACHE");
}

TEST_F(CudaDiskCache, KernelsOfAnotherNameAreTheSame) {
  const auto run_text = [&](const std::string& value) {
    EngineOptions options = on_cuda();
    options.cache_dir = folder_;
    Engine engine = parse_ir(
        "graph @main(%x: f32[s0]) {\n  %" + value + " = tanh(%x)\n  return %" + value + "\n}\n",
        options);
    engine.run({counted(f32, {5})});
    return engine.stats().kernels_compiled;
  };
  EXPECT_EQ(run_text("first"), 1u);
  EXPECT_EQ(run_text("second"), 0u);
}

TEST_F(CudaDiskCache, DamagedEntriesAreCompiledAnew) {
  const Outcome first = run();
  for (const fs::path& path : entries()) {
    std::string bytes = read(path.string());
    bytes[bytes.size() - 1] = static_cast<char>(bytes.back() ^ 1);
    write(path.string(), bytes);
  }
  const Outcome second = run();
  EXPECT_EQ(second.stats.kernels_compiled, first.stats.kernels_compiled);
  EXPECT_EQ(second.values, first.values);
  EXPECT_EQ(run().stats.kernels_compiled, 0u) << "and mended";
}

TEST_F(CudaDiskCache, ImagesThatAreGoneAreCompiledAnew) {
  const Outcome first = run();
  ASSERT_FALSE(images().empty());
  for (const Image& image : images()) fs::remove(image.path);
  const Outcome second = run();
  EXPECT_EQ(second.stats.kernels_compiled, first.stats.kernels_compiled);
  EXPECT_EQ(second.values, first.values);
}

/// A newer driver may refuse what an older one took.
TEST_F(CudaDiskCache, AnImageThatTheDriverRefusesIsCompiledAnew) {
  const Outcome first = run();
  for (const Image& image : images()) {
    jit::KernelCache cache(folder_);
    ASSERT_TRUE(cache.store(image.key, "no image at all, but long enough to be looked at as one"));
  }
  const Outcome second = run();
  EXPECT_EQ(second.stats.kernels_compiled, first.stats.kernels_compiled);
  EXPECT_EQ(second.values, first.values);
  EXPECT_EQ(run().stats.kernels_compiled, 0u) << "and mended";
}

TEST_F(CudaDiskCache, ACallThatFailsDoesNotLeaveWhatIsWrong) {
  if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  const Outcome want = run(false);
  run();
  control().fail(0, 0);
  run();
  const unsigned long calls = control().calls();
  for (unsigned long n = 1; n <= calls; ++n) {
    control().fail(n, 1);
    try {
      EXPECT_EQ(run().values, want.values);
    } catch (const Error&) {
    }
    SCOPED_TRACE(control().failed());
    control().fail(0, 0);
    EXPECT_EQ(control().live(), 0u);
    ASSERT_EQ(run().values, want.values);
  }
  EXPECT_EQ(run().stats.kernels_compiled, 0u);
}

}  // namespace
}  // namespace heddle::testing
