// The prelude's matrix instructions, simulated, against the fragment layouts of the PTX specification; asynchronous
// copies; and that tiles in shared memory have no bank conflicts.
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <set>

#include "base/half.h"
#include "heddle/error.h"
#include "tests/jit/cuda_runner.h"

namespace heddle::tests {
namespace {

constexpr int kLanes = 32;

/// A kernel `f` of one warp with buffers of 32-bit words.
jit::cuda::CudaSource warp_kernel(const std::string& parameters, const std::string& body,
                                  std::uint32_t threads = kLanes) {
  jit::cuda::CudaSource source;
  source.kernel =
      "extern \"C\" __global__ void f(" + parameters + ", int* status) {\n" + body + "}\n";
  source.entry = "f";
  source.block_threads = threads;
  source.blocks = 1;
  return source;
}

using Words = std::vector<std::uint32_t>;

/// Runs the kernel on `buffers`, and leaves there what the device has.
void run(const jit::cuda::CudaSource& source, std::vector<Words*> buffers) {
  SimulatedKernels kernels({source});
  std::vector<std::span<unsigned char>> spans;
  for (Words* words : buffers)
    spans.emplace_back(reinterpret_cast<unsigned char*>(words->data()), 4 * words->size());
  kernels.run(0, {}, spans);
}

// The layouts below are those of the PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type", with its
// names: groupID = lane >> 2, threadID_in_group = lane % 4, and a_i, b_i, c_i the i-th element of a lane, two to a
// register, the lower half first.

struct Place {
  int row;
  int column;
};

Place place_of_a(int lane, int i) {
  const int group = lane >> 2;
  const int thread = lane % 4;
  const int row = (i >= 0 && i < 2) || (i >= 4 && i < 6) ? group : group + 8;
  const int column = i < 4 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8;
  return {row, column};
}

Place place_of_b(int lane, int i) {
  const int group = lane >> 2;
  const int thread = lane % 4;
  return {i < 2 ? thread * 2 + (i & 1) : thread * 2 + (i & 1) + 8, group};
}

Place place_of_c(int lane, int i) {
  const int group = lane >> 2;
  const int thread = lane % 4;
  return {i < 2 ? group : group + 8, thread * 2 + (i & 1)};
}

template <typename Number>
std::uint32_t bits_of(float value) {
  return Number(value).bits;
}

/// a (16 x 16) times b (16 x 8) plus c through the instruction, each given and taken by its layout.
template <typename Number>
std::vector<float> multiplied(SimulatedKernels& kernel, const std::vector<float>& a,
                              const std::vector<float>& b, const std::vector<float>& c) {
  Words left(4 * kLanes), right(2 * kLanes), sums(4 * kLanes);
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 8; ++i) {
      const Place p = place_of_a(lane, i);
      left[static_cast<std::size_t>(4 * lane + i / 2)] |=
          bits_of<Number>(a[static_cast<std::size_t>(16 * p.row + p.column)]) << 16 * (i % 2);
    }
    for (int i = 0; i < 4; ++i) {
      const Place p = place_of_b(lane, i);
      right[static_cast<std::size_t>(2 * lane + i / 2)] |=
          bits_of<Number>(b[static_cast<std::size_t>(8 * p.row + p.column)]) << 16 * (i % 2);
      const Place q = place_of_c(lane, i);
      std::memcpy(&sums[static_cast<std::size_t>(4 * lane + i)],
                  &c[static_cast<std::size_t>(8 * q.row + q.column)], 4);
    }
  }
  std::vector<std::span<unsigned char>> spans;
  for (Words* words : {&left, &right, &sums})
    spans.emplace_back(reinterpret_cast<unsigned char*>(words->data()), 4 * words->size());
  kernel.run(0, {}, spans);
  std::vector<float> result(16 * 8);
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < 4; ++i) {
      const Place p = place_of_c(lane, i);
      std::memcpy(&result[static_cast<std::size_t>(8 * p.row + p.column)],
                  &sums[static_cast<std::size_t>(4 * lane + i)], 4);
    }
  return result;
}

/// Each element of a alone meets a b whose elements all differ: what comes out names the element and where it met.
template <typename Number>
void check_layout(const std::string& function) {
  SimulatedKernels kernel({warp_kernel("const unsigned int* a, const unsigned int* b, float* c",
                                       "  const int lane = threadIdx.x;\n  " + function +
                                           "(c + 4 * lane, a + 4 * lane, b + 2 * lane);\n")});
  std::vector<float> b(16 * 8), c(16 * 8);
  for (std::size_t k = 0; k < b.size(); ++k) b[k] = static_cast<float>(k) + 1;
  for (std::size_t k = 0; k < c.size(); ++k) c[k] = 1000.0f * static_cast<float>(k);
  for (int element = 0; element < 16 * 16; ++element) {
    std::vector<float> a(16 * 16);
    a[static_cast<std::size_t>(element)] = 2;
    const std::vector<float> got = multiplied<Number>(kernel, a, b, c);
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column) {
        const auto at = static_cast<std::size_t>(8 * row + column);
        const float met =
            row == element / 16 ? 2 * b[static_cast<std::size_t>(8 * (element % 16) + column)] : 0;
        ASSERT_EQ(got[at], c[at] + met) << "a(" << element / 16 << ", " << element % 16
                                        << "), sum (" << row << ", " << column << ")";
      }
  }
}

TEST(CudaMatrix, MmaOfF16HasTheLayoutOfTheSpecification) { check_layout<base::Half>("hd_mma_f16"); }
TEST(CudaMatrix, MmaOfBf16HasTheLayoutOfTheSpecification) {
  check_layout<base::BFloat16>("hd_mma_bf16");
}

// "Matrix Fragments for mma.m16n8k32" with .u8 or .s8 of the PTX ISA: four elements to a register, the lowest byte first.

Place place_of_byte_a(int lane, int i) {
  const int group = lane >> 2;
  const int thread = lane % 4;
  const int row = (i >= 0 && i < 4) || (i >= 8 && i < 12) ? group : group + 8;
  return {row, i < 8 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16};
}

Place place_of_byte_b(int lane, int i) {
  const int group = lane >> 2;
  const int thread = lane % 4;
  return {i < 4 ? thread * 4 + (i & 3) : thread * 4 + (i & 3) + 16, group};
}

/// a (16 x 32) times b (32 x 8) plus c, of bytes as they are given: each is cut to 8 bits.
std::vector<std::uint32_t> multiplied_bytes(SimulatedKernels& kernel, const std::vector<int>& a,
                                            const std::vector<int>& b,
                                            const std::vector<std::uint32_t>& c) {
  Words left(4 * kLanes), right(2 * kLanes), sums(4 * kLanes);
  const auto put = [](Words& words, int byte, int value) {
    words[static_cast<std::size_t>(byte / 4)] |= (static_cast<std::uint32_t>(value) & 0xffu)
                                                 << 8 * (byte % 4);
  };
  for (int lane = 0; lane < kLanes; ++lane) {
    for (int i = 0; i < 16; ++i) {
      const Place p = place_of_byte_a(lane, i);
      put(left, 16 * lane + i, a[static_cast<std::size_t>(32 * p.row + p.column)]);
    }
    for (int i = 0; i < 8; ++i) {
      const Place p = place_of_byte_b(lane, i);
      put(right, 8 * lane + i, b[static_cast<std::size_t>(8 * p.row + p.column)]);
    }
    for (int i = 0; i < 4; ++i) {
      const Place p = place_of_c(lane, i);
      sums[static_cast<std::size_t>(4 * lane + i)] =
          c[static_cast<std::size_t>(8 * p.row + p.column)];
    }
  }
  std::vector<std::span<unsigned char>> spans;
  for (Words* words : {&left, &right, &sums})
    spans.emplace_back(reinterpret_cast<unsigned char*>(words->data()), 4 * words->size());
  kernel.run(0, {}, spans);
  std::vector<std::uint32_t> result(16 * 8);
  for (int lane = 0; lane < kLanes; ++lane)
    for (int i = 0; i < 4; ++i) {
      const Place p = place_of_c(lane, i);
      result[static_cast<std::size_t>(8 * p.row + p.column)] =
          sums[static_cast<std::size_t>(4 * lane + i)];
    }
  return result;
}

/// Like check_layout(); the elements of b are all 256 bytes, and the one of a takes values at the ends of its range.
void check_byte_layout(bool left_signed, bool right_signed) {
  const auto truth = [](bool value) { return value ? std::string("true") : std::string("false"); };
  SimulatedKernels kernel(
      {warp_kernel("const unsigned int* a, const unsigned int* b, unsigned int* c",
                   "  const int lane = threadIdx.x;\n  hd_mma_bytes<" + truth(left_signed) + ", " +
                       truth(right_signed) + ">(c + 4 * lane, a + 4 * lane, b + 2 * lane);\n")});
  const auto read = [](int byte, bool is_signed) {
    return static_cast<std::uint32_t>(is_signed && byte >= 128 ? byte - 256 : byte);
  };
  std::vector<int> b(32 * 8);
  std::vector<std::uint32_t> c(16 * 8);
  for (std::size_t k = 0; k < b.size(); ++k) b[k] = static_cast<int>(k);
  for (std::size_t k = 0; k < c.size(); ++k)
    c[k] = 0xffffff00u + 100000u * static_cast<std::uint32_t>(k);
  constexpr int kValues[] = {1, 127, 128, 255};
  for (int element = 0; element < 16 * 32; ++element) {
    const int value = kValues[element % 4];
    std::vector<int> a(16 * 32);
    a[static_cast<std::size_t>(element)] = value;
    const std::vector<std::uint32_t> got = multiplied_bytes(kernel, a, b, c);
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column) {
        const auto at = static_cast<std::size_t>(8 * row + column);
        const std::uint32_t met =
            row != element / 32
                ? 0
                : read(value, left_signed) *
                      read(b[static_cast<std::size_t>(8 * (element % 32) + column)], right_signed);
        ASSERT_EQ(got[at], c[at] + met) << "a(" << element / 32 << ", " << element % 32
                                        << "), sum (" << row << ", " << column << ")";
      }
  }
}

TEST(CudaMatrix, MmaOfBytesHasTheLayoutOfTheSpecification) {
  for (const bool left : {false, true})
    for (const bool right : {false, true}) check_byte_layout(left, right);
}

// "Matrix Fragments for mma.m16n8k8" with .tf32 of the PTX ISA: one element to a register.

Place place_of_tf32_a(int lane, int i) {
  const int group = lane >> 2;
  const int thread = lane % 4;
  return {i == 0 || i == 2 ? group : group + 8, i == 0 || i == 1 ? thread : thread + 4};
}

Place place_of_tf32_b(int lane, int i) { return {i == 0 ? lane % 4 : lane % 4 + 4, lane >> 2}; }

TEST(CudaMatrix, MmaOfTf32HasTheLayoutOfTheSpecification) {
  SimulatedKernels kernel(
      {warp_kernel("const float* a, const float* b, float* c",
                   "  const int lane = threadIdx.x;\n  hd_mma_tf32(c + 4 * lane, "
                   "(const unsigned int*)a + 4 * lane, "
                   "(const unsigned int*)b + 2 * lane);\n")});
  for (int element = 0; element < 16 * 8; ++element) {
    std::vector<float> a(4 * kLanes), b(2 * kLanes), c(4 * kLanes);
    for (int lane = 0; lane < kLanes; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const Place p = place_of_tf32_a(lane, i);
        if (8 * p.row + p.column == element) a[static_cast<std::size_t>(4 * lane + i)] = 2;
        const Place q = place_of_c(lane, i);
        c[static_cast<std::size_t>(4 * lane + i)] =
            1000.0f * static_cast<float>(8 * q.row + q.column);
      }
      for (int i = 0; i < 2; ++i) {
        const Place p = place_of_tf32_b(lane, i);
        b[static_cast<std::size_t>(2 * lane + i)] = static_cast<float>(8 * p.row + p.column) + 1;
      }
    }
    std::vector<std::span<unsigned char>> spans;
    for (std::vector<float>* floats : {&a, &b, &c})
      spans.emplace_back(reinterpret_cast<unsigned char*>(floats->data()), 4 * floats->size());
    kernel.run(0, {}, spans);
    for (int lane = 0; lane < kLanes; ++lane)
      for (int i = 0; i < 4; ++i) {
        const Place p = place_of_c(lane, i);
        const float met =
            p.row == element / 8 ? 2.0f * static_cast<float>(8 * (element % 8) + p.column + 1) : 0;
        ASSERT_EQ(c[static_cast<std::size_t>(4 * lane + i)],
                  1000.0f * static_cast<float>(8 * p.row + p.column) + met)
            << "a(" << element / 8 << ", " << element % 8 << "), lane " << lane << ", " << i;
      }
  }
}

/// To nearest, ties away from zero, of 13 bits: all that they can be, at exponents from the smallest to the largest.
TEST(CudaMatrix, Tf32IsTheNearestWithTenBits) {
  Words given;
  for (const std::uint32_t above :
       {0x0u, 0x800000u, 0x3f800000u, 0x3fffe000u, 0x7f7fe000u, 0x4b123000u})
    for (std::uint32_t low = 0; low < 0x2000; ++low)
      for (const std::uint32_t sign : {0u, 0x80000000u}) given.push_back(above | low | sign);
  const std::size_t finite = given.size();
  given.insert(given.end(), {0x7f800000u, 0xff800000u, 0x7fc00000u, 0x7f800001u});
  Words out(given.size());
  run(warp_kernel("const unsigned int* given, unsigned int* out",
                  "  for (int k = threadIdx.x; k < " + std::to_string(given.size()) +
                      "; k += 32) out[k] = hd_to_tf32(given[k]);\n"),
      {&given, &out});
  for (std::size_t k = 0; k < finite; ++k) {
    const std::uint32_t below = given[k] & ~0x1fffu;
    // Neighbours by their bits: of the same sign, one tf32 apart, infinity beyond the largest.
    const std::uint32_t want = (given[k] & 0x1fffu) < 0x1000u ? below : below + 0x2000u;
    ASSERT_EQ(out[k], want) << std::hex << given[k];
  }
  EXPECT_EQ(out[finite], 0x7f800000u);
  EXPECT_EQ(out[finite + 1], 0xff800000u);
  for (std::size_t k = finite + 2; k < out.size(); ++k) {
    float value = 0;
    std::memcpy(&value, &out[k], 4);
    EXPECT_TRUE(std::isnan(value));
  }
}

TEST(CudaMatrix, PermutedBytesAreThoseTheSelectorNames) {
  Words selectors, out(8 * 8 * 8 * 8);
  for (std::uint32_t k = 0; k < out.size(); ++k)
    selectors.push_back((k & 7u) | (k >> 3 & 7u) << 4 | (k >> 6 & 7u) << 8 | (k >> 9) << 12);
  run(warp_kernel("const unsigned int* selectors, unsigned int* out",
                  "  for (int k = threadIdx.x; k < 4096; k += 32)\n"
                  "    out[k] = hd_permute_bytes(0x13121110u, 0x17161514u, selectors[k]);\n"),
      {&selectors, &out});
  for (std::uint32_t k = 0; k < out.size(); ++k)
    for (std::uint32_t byte = 0; byte < 4; ++byte)
      ASSERT_EQ(out[k] >> 8 * byte & 0xffu, 0x10u + (selectors[k] >> 4 * byte & 7u)) << k;
}

TEST(CudaMatrix, BytesOfFourWordsAreTransposed) {
  Words out(4);
  run(warp_kernel(
          "unsigned int* out",
          "  unsigned int words[4] = {0x03020100u, 0x13121110u, 0x23222120u, 0x33323130u};\n"
          "  hd_transpose_bytes(words);\n"
          "  if (threadIdx.x < 4) out[threadIdx.x] = words[threadIdx.x];\n"),
      {&out});
  EXPECT_EQ(out, (Words{0x30201000u, 0x31211101u, 0x32221202u, 0x33231303u}));
}

/// ldmatrix: row r of matrix m is what lane 8 * m + r points to; register m of a lane has of matrix m elements
/// (lane / 4, 2 * (lane % 4)) and the next, or those of the transposed matrix.
void check_load(const std::string& function, bool transposed) {
  Words memory(4 * 8 * 4), offsets(kLanes), out(4 * kLanes);
  for (std::size_t k = 0; k < memory.size(); ++k)
    memory[k] = static_cast<std::uint32_t>(2 * k | (2 * k + 1) << 16);
  // Rows lie in an order of their own, so that an address of the wrong lane shows.
  for (std::uint32_t lane = 0; lane < kLanes; ++lane) offsets[lane] = lane * 13 % 32;
  run(warp_kernel("const unsigned int* memory, const unsigned int* offsets, unsigned int* out",
                  "  __shared__ __align__(16) unsigned int rows[128];\n"
                  "  for (int k = threadIdx.x; k < 128; k += 32) rows[k] = memory[k];\n"
                  "  __syncthreads();\n"
                  "  " +
                      function + "(out + 4 * threadIdx.x, rows + 4 * offsets[threadIdx.x]);\n"),
      {&memory, &offsets, &out});
  for (std::uint32_t lane = 0; lane < kLanes; ++lane)
    for (std::uint32_t matrix = 0; matrix < 4; ++matrix)
      for (std::uint32_t half = 0; half < 2; ++half) {
        const std::uint32_t first = lane / 4;
        const std::uint32_t second = 2 * (lane % 4) + half;
        const std::uint32_t row = transposed ? second : first;
        const std::uint32_t column = transposed ? first : second;
        const std::uint32_t want = 8 * offsets[8 * matrix + row] + column;
        ASSERT_EQ(out[4 * lane + matrix] >> 16 * half & 0xffffu, want)
            << "lane " << lane << ", matrix " << matrix << ", half " << half;
      }
}

TEST(CudaMatrix, LdmatrixHasTheLayoutOfTheSpecification) { check_load("hd_load_matrices", false); }
TEST(CudaMatrix, TransposingLdmatrixHasTheLayoutOfTheSpecification) {
  check_load("hd_load_transposed", true);
}

TEST(CudaMatrix, AsynchronousCopiesFillWithZerosWhatIsNotThere) {
  Words from(4 * kLanes), out(4 * kLanes);
  for (std::size_t k = 0; k < from.size(); ++k) from[k] = static_cast<std::uint32_t>(k) + 1;
  run(warp_kernel(
          "const unsigned int* from, unsigned int* out",
          "  __shared__ __align__(16) unsigned int tile[128];\n"
          "  const int t = threadIdx.x;\n"
          "  hd_copy_async(tile + 4 * t, from + 4 * t, t % 9 * 2 <= 16 ? t % 9 * 2 : 0);\n"
          "  hd_copy_commit();\n  hd_copy_wait<0>();\n  __syncthreads();\n"
          "  for (int k = 0; k < 4; ++k) out[4 * (31 - t) + k] = tile[4 * (31 - t) + k];\n"),
      {&from, &out});
  for (std::uint32_t k = 0; k < out.size(); ++k) {
    const std::uint32_t valid = k / 4 % 9 * 2;  // bytes
    const std::uint32_t mine = valid <= k % 4 * 4 ? 0 : std::min(4u, valid - k % 4 * 4);
    const std::uint32_t mask = mine == 4 ? 0xffffffffu : (1u << 8 * mine) - 1;
    ASSERT_EQ(out[k], from[k] & mask) << k;
  }
}

/// Of what begins at any element: all of 16 bytes, or zeros from the first that is not there on.
TEST(CudaMatrix, PiecesOfMemoryThatBeginsAnywhere) {
  std::vector<std::uint32_t> from(64);
  auto* const bytes = reinterpret_cast<unsigned char*>(from.data());
  for (std::size_t k = 0; k < 4 * from.size(); ++k) bytes[k] = static_cast<unsigned char>(k + 1);
  for (const auto& [type, size] : {std::pair{"unsigned char", 1}, {"hd_f16", 2}, {"float", 4}})
    for (int first = 0; first * size < 16; ++first) {
      SCOPED_TRACE(std::string(type) + " from " + std::to_string(first));
      const int count = 16 / size;
      Words out(static_cast<std::size_t>(4 * (count + 1)));
      run(warp_kernel("const unsigned int* from, unsigned int* out",
                      "  __shared__ hd_sixteen tile[17];\n  const int t = threadIdx.x;\n"
                      "  if (t <= " +
                          std::to_string(count) + ") hd_fetch_piece<" + type + ", " +
                          std::to_string(count) + ">(tile + t, (const " + type + "*)from + " +
                          std::to_string(first) +
                          ", t);\n"
                          "  hd_copy_commit();\n  hd_copy_wait<0>();\n  __syncthreads();\n"
                          "  for (int k = 0; t <= " +
                          std::to_string(count) +
                          " && k < 4; ++k) out[4 * t + k] = tile[t].words[k];\n"),
          {&from, &out});
      const auto* const got = reinterpret_cast<const unsigned char*>(out.data());
      for (int valid = 0; valid <= count; ++valid)
        for (int k = 0; k < 16; ++k)
          ASSERT_EQ(got[16 * valid + k], k < valid * size ? bytes[first * size + k] : 0)
              << valid << " are there, byte " << k;
    }
}

TEST(CudaMatrix, ACopyIsThereOnlyOnceItsGroupIsWaitedFor) {
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  Words from(8, 7), out(2);
  run(warp_kernel("const unsigned int* from, unsigned int* out",
                  "  __shared__ __align__(16) unsigned int tile[8];\n"
                  "  if (threadIdx.x == 0) {\n"
                  "    hd_copy_async(tile, from, 16);\n    hd_copy_commit();\n"
                  "    hd_copy_async(tile + 4, from + 4, 16);\n    hd_copy_commit();\n"
                  "    hd_copy_wait<1>();\n    out[0] = tile[0];\n    out[1] = tile[4];\n  }\n"),
      {&from, &out});
  EXPECT_EQ(out[0], 7u);
  EXPECT_EQ(out[1], 0xffffffffu) << "the second group is under way";
}

TEST(CudaMatrix, LanesThatMeetAtDifferentInstructionsAreAnError) {
  if (!test::on_simulator()) GTEST_SKIP() << test::kNeedsSimulator;
  Words a(4), b(4), c(4 * kLanes);
  EXPECT_THROW(run(warp_kernel("const unsigned int* a, const unsigned int* b, float* c",
                               "  if (threadIdx.x < 16) hd_mma_f16(c + 4 * threadIdx.x, a, b);\n"
                               "  else c[threadIdx.x] = hd_exchange(c[threadIdx.x], 1);\n"),
                   {&a, &b, &c}),
               Error);
}

/// Eight rows that ldmatrix reads at once, and eight pieces of a row that neighbours fill, lie in all 32 banks.
TEST(CudaMatrix, SwizzledTilesHaveNoBankConflicts) {
  for (const int pieces : {1, 2, 4, 8, 16, 32}) {
    constexpr int kRows = 64;
    Words out(static_cast<std::size_t>(kRows * pieces));
    run(warp_kernel("unsigned int* out",
                    "  for (int k = threadIdx.x; k < " + std::to_string(kRows * pieces) +
                        "; k += 32)\n    out[k] = hd_swizzled<" + std::to_string(kRows) + ", " +
                        std::to_string(pieces) + ">(k / " + std::to_string(pieces) + ", k % " +
                        std::to_string(pieces) + ");\n"),
        {&out});
    EXPECT_EQ(std::set<std::uint32_t>(out.begin(), out.end()).size(), out.size())
        << "every place once, " << pieces << " pieces";
    EXPECT_EQ(*std::max_element(out.begin(), out.end()), out.size() - 1);
    const auto banks = [&](auto place) {
      std::set<std::uint32_t> found;
      for (int k = 0; k < 8; ++k) found.insert(out[static_cast<std::size_t>(place(k))] % 8);
      return found.size();
    };
    for (int row = 0; row < kRows; row += 8)
      for (int piece = 0; piece < pieces; ++piece)
        ASSERT_EQ(banks([&](int k) { return (row + k) * pieces + piece; }), 8u)
            << pieces << " pieces, rows from " << row << ", piece " << piece;
    for (int first = 0; first + 8 <= kRows * pieces; first += 8)
      ASSERT_EQ(banks([&](int k) { return first + k; }), 8u)
          << pieces << " pieces, filled from " << first;
  }
}

/// Words that a warp reads of a matrix of bytes lie in as many banks, for each of its reads; all places are used once.
TEST(CudaMatrix, TilesReadWordByWordHaveNoBankConflicts) {
  for (const auto& [rows, pieces, apart] : {std::tuple{64, 8, 4},
                                            {128, 8, 4},
                                            {128, 4, 4},
                                            {32, 16, 4},
                                            {32, 16, 1},
                                            {16, 32, 1},
                                            {32, 4, 1}}) {
    Words out(static_cast<std::size_t>(rows * pieces));
    const std::string size =
        std::to_string(rows) + ", " + std::to_string(pieces) + ", " + std::to_string(apart);
    run(warp_kernel("unsigned int* out",
                    "  for (int k = threadIdx.x; k < " + std::to_string(rows * pieces) +
                        "; k += 32)\n    out[k] = hd_swizzled_words<" + size + ">(k / " +
                        std::to_string(pieces) + ", k % " + std::to_string(pieces) + ");\n"),
        {&out});
    EXPECT_EQ(std::set<std::uint32_t>(out.begin(), out.end()).size(), out.size()) << size;
    EXPECT_EQ(*std::max_element(out.begin(), out.end()), out.size() - 1) << size;
    for (int first = 0; first < rows; first += 4 * apart)
      for (int n = 0; n < apart; ++n)
        for (int column = 0; column < 16 * pieces; column += 32) {
          std::set<std::uint32_t> banks;
          for (int lane = 0; lane < kLanes; ++lane) {
            const int row = first + lane % 4 * apart + n;
            const int at = column + lane / 4 * 4;
            banks.insert((4 * out[static_cast<std::size_t>(row * pieces + at / 16)] +
                          static_cast<std::uint32_t>(at / 4 % 4)) %
                         32);
          }
          ASSERT_EQ(banks.size(), 32u) << size << ": row " << first + n << ", column " << column;
        }
  }
}

}  // namespace
}  // namespace heddle::tests
