// The simulated driver's meter, on kernels whose traffic is worked out by hand.
#include <gmock/gmock.h>

#include "device/cuda/cuda_device.h"
#include "device/cuda/nvrtc.h"
#include "tests/cuda/metered.h"

namespace heddle::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

constexpr std::size_t kWords = 8192;

/// What a kernel `f(float* memory)` asks for, in one launch on `kWords` zeros. Two warps, if nothing else is said.
LaunchTraffic traffic_of(const std::string& body, std::uint32_t blocks = 1,
                         std::uint32_t threads = 64) {
  const auto device = device::cuda::open_cuda(0, test::simulator_path());
  const device::cuda::Nvrtc nvrtc(test::simulator_path());
  const std::string text =
      "struct alignas(16) Four { float at[4]; };\n"
      "extern \"C\" __global__ void f(float* memory) {\n  const unsigned int t = threadIdx.x;\n" +
      body + "\n}\n";
  const auto module = device->load(nvrtc.compile_cubin(text, "f", "sm_90a").image);
  const auto stream = device->make_stream();
  const device::Allocation memory(*device, kWords * 4);
  device->fill(memory.get(), 0, kWords * 4, *stream);
  void* address = memory.get();
  void* const arguments[] = {&address};
  const std::vector<LaunchTraffic> launches = metered([&] {
    device->launch(module->kernel("f"), {.blocks = blocks, .threads = threads}, arguments, *stream);
    stream->synchronize();
  });
  EXPECT_EQ(std::string(control().problem()), "");
  EXPECT_EQ(launches.size(), 1u);
  return launches.empty() ? LaunchTraffic() : launches[0];
}

class CudaSimMeter : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!on_simulator()) GTEST_SKIP() << kNeedsSimulator;
  }
};

/// A warp's 32 words of 4 bytes are 128 bytes: 4 sectors where they lie side by side.
TEST_F(CudaSimMeter, CountsSectorsOfGlobalMemory) {
  struct Case {
    const char* body;
    std::uint64_t bytes, sectors, least;
  };
  for (const Case& one : {
           Case{"memory[t] = 1;", 256, 8, 8},
           Case{"memory[63 - t] = 1;", 256, 8, 8},
           Case{"memory[t + 1] = 1;", 256, 10, 8},
           Case{"memory[2 * t] = 1;", 256, 16, 8},
           Case{"memory[100 * t] = 1;", 256, 64, 8},
           Case{"if (t % 4 == 0) memory[t] = 1;", 64, 8, 2},
           Case{"((char*)memory)[t] = 1;", 64, 2, 2},
           Case{"((double*)memory)[t] = 1;", 512, 16, 16},
       }) {
    SCOPED_TRACE(one.body);
    const LaunchTraffic launch = traffic_of(one.body);
    EXPECT_THAT(launch.sites,
                ElementsAre(SiteTraffic{"write 0", one.bytes, 2, one.sectors, one.least}));
  }
}

TEST_F(CudaSimMeter, LanesThatReadTheSameBytesShareASector) {
  const LaunchTraffic launch = traffic_of("memory[64 + t] = memory[t / 32];");
  EXPECT_THAT(launch.sites, UnorderedElementsAre(SiteTraffic{"read 0", 256, 2, 2, 2},
                                                 SiteTraffic{"write 0", 256, 2, 8, 8}));
}

TEST_F(CudaSimMeter, CountsWideAccessesAsOne) {
  const std::string copy = "((Four*)memory)[64 + t] = ((const Four*)memory)[";
  EXPECT_THAT(traffic_of(copy + "t];").sites,
              UnorderedElementsAre(SiteTraffic{"read 0", 1024, 2, 32, 32},
                                   SiteTraffic{"write 0", 1024, 2, 32, 32}));
  EXPECT_THAT(traffic_of(copy + "2 * t % 64];").sites,
              UnorderedElementsAre(SiteTraffic{"read 0", 1024, 2, 64, 32},
                                   SiteTraffic{"write 0", 1024, 2, 32, 32}));
}

/// Sixteen bytes are the widest access of a lane.
TEST_F(CudaSimMeter, SplitsWhatIsWiderThanAnAccess) {
  const std::string copy =
      "struct Eight { Four at[2]; };\n((Eight*)memory)[64 + t] = ((const Eight*)memory)[t];";
  EXPECT_THAT(traffic_of(copy).sites,
              UnorderedElementsAre(SiteTraffic{"read 0", 2048, 4, 128, 64},
                                   SiteTraffic{"write 0", 2048, 4, 128, 64}));
}

TEST_F(CudaSimMeter, CountsThreadsAndTheirAccesses) {
  const LaunchTraffic some = traffic_of("if (t < 40) memory[64 * blockIdx.x + t] += 1;", 3);
  EXPECT_EQ(some.kernel, "f");
  EXPECT_EQ(some.blocks, 3u);
  EXPECT_EQ(some.threads, 192u);
  EXPECT_EQ(some.working, 120u);
  EXPECT_EQ(some.most, 2u);
  EXPECT_EQ(some.all, 240u);
  const LaunchTraffic chain = traffic_of("if (t == 3) for (int k = 0; k < 50; ++k) memory[k] = 1;");
  EXPECT_EQ(chain.working, 1u);
  EXPECT_EQ(chain.most, 50u);
  EXPECT_EQ(chain.all, 50u);
  EXPECT_THAT(chain.sites, ElementsAre(SiteTraffic{"write 0", 200, 50, 50, 50}));
  const LaunchTraffic shared = traffic_of(
      "__shared__ float s[64]; s[t] = t; __syncthreads(); if (s[63 - t] < 0) memory[t] = 1;");
  EXPECT_EQ(shared.working, 0u);
}

/// The n-th time at a site goes with the n-th of other lanes, from one meeting of the lanes to the next.
TEST_F(CudaSimMeter, LanesGoTogetherFromBarrierToBarrier) {
  const std::string loop =
      "for (int k = 1; k < 4; ++k) {\n    if (t % 32 != 0 || k != 1) memory[64 * k + t] = 1;\n";
  EXPECT_THAT(traffic_of(loop + "  __syncthreads();\n  }").sites,
              ElementsAre(SiteTraffic{"write 0", 760, 6, 24, 24}));
  EXPECT_THAT(traffic_of(loop + "  __shfl_xor_sync(0xffffffffu, t, 1);\n  }").sites,
              ElementsAre(SiteTraffic{"write 0", 760, 6, 24, 24}));
  // Lane 0 is one round ahead: its words are in sectors of their own, and of its last round there is none.
  EXPECT_THAT(traffic_of(loop + "  }").sites, ElementsAre(SiteTraffic{"write 0", 760, 6, 28, 24}));
}

TEST_F(CudaSimMeter, CountsAtomicUpdates) {
  EXPECT_THAT(
      traffic_of("atomicAdd(memory + t, 1.0f);\n  atomicAdd((unsigned int*)memory + 100, 1u);")
          .sites,
      ElementsAre(SiteTraffic{"atomic 0", 256, 2, 8, 8}, SiteTraffic{"atomic 0", 256, 2, 2, 2}));
}

/// Passes of one warp that reads `index` of a tile of `words` floats as `type`.
SiteTraffic shared_read(const std::string& type, const std::string& index, int words = 1056) {
  const LaunchTraffic launch = traffic_of(
      "__shared__ __align__(16) float s[" + std::to_string(words) + "];\n  for (int k = t; k < " +
          std::to_string(words) + "; k += 32) s[k] = 1;\n  __syncthreads();\n  const " + type +
          "* at = (const " + type + "*)s;\n  ((" + type + "*)memory)[t] = at[" + index + "];",
      1, 32);
  for (const SiteTraffic& site : launch.sites)
    if (site.place == "shared read") return site;
  return {};
}

TEST_F(CudaSimMeter, CountsPassesOfSharedMemory) {
  const auto read = [](std::uint64_t bytes, std::uint64_t passes, std::uint64_t least) {
    return SiteTraffic{"shared read", bytes, 1, passes, least};
  };
  EXPECT_EQ(shared_read("float", "t"), read(128, 1, 1));
  EXPECT_EQ(shared_read("float", "0"), read(128, 1, 1)) << "one word for all";
  EXPECT_EQ(shared_read("float", "2 * t"), read(128, 2, 1));
  EXPECT_EQ(shared_read("float", "32 * t"), read(128, 32, 1)) << "a column of a tile";
  EXPECT_EQ(shared_read("float", "33 * t"), read(128, 1, 1)) << "of a padded one";
  EXPECT_EQ(shared_read("char", "t"), read(32, 1, 1)) << "four bytes of a word";
  EXPECT_EQ(shared_read("short", "64 * t"), read(64, 32, 1));
  EXPECT_EQ(shared_read("double", "t"), read(256, 2, 2)) << "half a warp at a time";
  EXPECT_EQ(shared_read("double", "2 * t"), read(256, 4, 2));
  EXPECT_EQ(shared_read("Four", "t"), read(512, 4, 4)) << "a quarter at a time";
  EXPECT_EQ(shared_read("Four", "8 * (t % 4)"), read(512, 16, 4));
}

/// To the meter each lane of ldmatrix reads a row of 16 bytes; cp.async reads and writes at once.
TEST_F(CudaSimMeter, CountsMatricesAndAsynchronousCopies) {
  for (const auto& [pitch, passes] : {std::pair{128, 32u}, {144, 4u}}) {
    const LaunchTraffic launch = traffic_of(
        "__shared__ __align__(16) char s[32 * 144];\n"
        "  hd_copy_async(s + " +
            std::to_string(pitch) +
            " * t, memory + 4 * t, 16);\n"
            "  hd_copy_commit();\n  hd_copy_wait<0>();\n  __syncthreads();\n  unsigned int r[4];\n"
            "  hd_load_matrices(r, s + " +
            std::to_string(pitch) +
            " * t);\n"
            "  memory[2048 + t] = r[0] + r[3];",
        1, 32);
    std::vector<std::string> places;
    for (const SiteTraffic& site : launch.sites) places.push_back(site.place);
    EXPECT_THAT(places, ::testing::UnorderedElementsAre("read 0", "shared write", "shared read",
                                                        "write 0"));
    for (const SiteTraffic& site : launch.sites) {
      if (site.place == "read 0") {
        EXPECT_EQ(site, (SiteTraffic{"read 0", 512, 1, 16, 16}));
      }
      if (site.is_shared()) {
        EXPECT_EQ(site, (SiteTraffic{site.place, 512, 1, passes, 4}));
      }
    }
  }
}

TEST_F(CudaSimMeter, IsOffUntilItIsAskedFor) {
  Engine engine([](const Tensor& x) { return x + x; }, on_cuda());
  const std::vector<Tensor> inputs = {counted(f32, {100})};
  control().meter(0);
  engine.run(inputs)[0].wait();
  EXPECT_STREQ(control().metered(), "");
  EXPECT_EQ(metered([&] { engine.run(inputs)[0].wait(); }).size(), 1u);
  control().meter(1);
  EXPECT_STREQ(control().metered(), "") << "what was there is forgotten";
  control().meter(0);
}

/// Parameters tell buffers apart, though these lie in one allocation.
TEST_F(CudaSimMeter, NamesTheParameterOfASite) {
  Engine engine([](const Tensor& x, const Tensor& y) { return x * y + 1.0f; }, on_cuda());
  const std::vector<Tensor> inputs = {counted(f32, {100}), counted(f32, {100}, 1)};
  const auto launches = metered([&] { engine.run(inputs)[0].wait(); });
  ASSERT_EQ(launches.size(), 1u);
  std::vector<std::string> places;
  for (const SiteTraffic& site : launches[0].sites) places.push_back(site.place);
  EXPECT_THAT(places, ::testing::UnorderedElementsAre("read 0", "read 1", "write 2"));
}

}  // namespace
}  // namespace heddle::testing
