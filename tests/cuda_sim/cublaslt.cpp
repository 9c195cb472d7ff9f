// The cuBLASLt functions that the engine uses: a kernel that multiplies matrices one element at a time, behind the checks that
// the library's documentation asks for. Deep products take a workspace and two operations, so that what is captured has
// more than one form.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <string>
#include <vector>

#include "tests/cuda_sim/entry.h"
#include "tests/cuda_sim/host_compiler.h"
#include "tests/cuda_sim/inject.h"
#include "tests/cuda_sim/library_text.h"
#include "tests/cuda_sim/module.h"

extern "C" int cuModuleLoadData(void** module, const void* image);
extern "C" int cuModuleUnload(void* module);
extern "C" int cuModuleGetFunction(void** function, void* module, const char* name);
extern "C" int cuMemsetD8Async(void* to, unsigned char value, std::size_t bytes, void* stream);
extern "C" int cuLaunchKernel(void* function, unsigned int grid_x, unsigned int grid_y,
                              unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                              unsigned int block_z, unsigned int shared_bytes, void* stream,
                              void** arguments, void** extra);

namespace {

enum Status : int {
  kOk = 0,
  kNotInitialized = 1,
  kBadValue = 7,
  kExecutionFailed = 13,
  kInternal = 14,
  kNotDone = 15,
};

constexpr int kF32 = 0;
constexpr int kF16 = 2;
constexpr int kBf16 = 14;
constexpr std::int64_t kDeep = 128;  ///< from here on a product takes a workspace
constexpr std::size_t kWorkspaceBytes = 4096;
constexpr std::uint64_t kChosen = 0x68646c74;

/// Matrices have neighbours in a column. d = op(a) * op(b), m x k by k x n.
constexpr const char* kText = R"(
extern "C" __global__ void heddle_sim_cublaslt(const void* a, const void* b, void* d, const void* workspace,
    long long m, long long n, long long k, long long batches, long long a_row, long long a_column,
    long long a_batch, long long b_row, long long b_column, long long b_batch, long long d_column,
    long long d_batch, int type, int d_type, int narrow) {
  const long long count = m * n * batches;
  for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < count;
       e += (long long)gridDim.x * blockDim.x) {
    const long long row = e % m, column = e / m % n, batch = e / (m * n);
    float sum = workspace != 0 ? ((const float*)workspace)[e % 1024] : 0.0f;
    for (long long i = 0; i < k; ++i) {
      if (narrow != 0 && i == k / 2 && d_type == 2) sum = hd_cvt_f32_f16(hd_cvt_f16_f32(sum));
      sum += element(a, type, batch * a_batch + row * a_row + i * a_column) *
             element(b, type, batch * b_batch + i * b_row + column * b_column);
    }
    const long long at = batch * d_batch + column * d_column + row;
    if (d_type == 0) ((float*)d)[at] = sum;
    if (d_type == 2) ((unsigned short*)d)[at] = hd_cvt_f16_f32(sum);
    if (d_type == 14) ((unsigned short*)d)[at] = to_bf16(sum);
  }
}
)";

struct Handle {
  void* module = nullptr;
  void* kernel = nullptr;
};
struct Product {
  int compute, scale;
  std::int32_t transposed[2] = {0, 0};
};
struct Matrix {
  int type;
  std::int64_t rows, columns, stride;
  std::int32_t batches = 1;
  std::int64_t batch_stride = 0;
};
constexpr std::uint32_t kInPlace = 1;  ///< how parts of a sum may be added up: in the result's type
constexpr std::uint32_t kInOutputType = 4;
struct Preference {
  std::uint32_t reductions = 7;  ///< all
  std::uint64_t workspace_bytes = 0;
  std::uint32_t alignments[4] = {256, 256, 256, 256};
};
struct Algorithm {
  std::uint64_t data[8];
};
struct Found {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

using heddle::sim::objects;

/// Whether the call is to fail.
bool fails(const char* function) { return heddle::sim::Injector::instance().enter(function) != 0; }

template <typename T>
bool take(T& to, const void* value, std::size_t bytes) {
  if (bytes != sizeof to) return false;
  std::memcpy(&to, value, bytes);
  return true;
}

std::int64_t depth_of(const Product& product, const Matrix& a) {
  return product.transposed[0] != 0 ? a.rows : a.columns;
}

/// Whether the matrices are those of a product.
bool fit(const Product& product, const Matrix& a, const Matrix& b, const Matrix& d) {
  const bool ta = product.transposed[0] != 0;
  const bool tb = product.transposed[1] != 0;
  for (const Matrix* one : {&a, &b, &d})
    if (one->rows <= 0 || one->columns <= 0 || one->stride < one->rows ||
        one->batches != d.batches || one->batches < 1)
      return false;
  return (ta ? a.columns : a.rows) == d.rows && (tb ? b.rows : b.columns) == d.columns &&
         depth_of(product, a) == (tb ? b.columns : b.rows);
}

/// Whether the types are among those that the library takes together.
bool is_known(const Product& product, const Matrix& a, const Matrix& b, const Matrix& d) {
  constexpr int kCompute = 68;
  constexpr int kComputeTf32 = 77;
  if (product.scale != kF32 || a.type != b.type) return false;
  if (product.compute == kComputeTf32) return a.type == kF32 && d.type == kF32;
  if (product.compute != kCompute) return false;
  return d.type == kF32 || d.type == a.type;
}

bool is_aligned(const void* address) { return reinterpret_cast<std::uintptr_t>(address) % 16 == 0; }

}  // namespace

EXPORT const char* cublasLtGetStatusName(int status) {
  return status == kBadValue          ? "CUBLAS_STATUS_INVALID_VALUE"
         : status == kNotInitialized  ? "CUBLAS_STATUS_NOT_INITIALIZED"
         : status == kExecutionFailed ? "CUBLAS_STATUS_EXECUTION_FAILED"
         : status == kNotDone         ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                      : "CUBLAS_STATUS_INTERNAL_ERROR";
}

EXPORT int cublasLtCreate(void** handle) {
  if (fails("cublasLtCreate")) return kNotInitialized;
  const heddle::sim::HostImage image =
      heddle::sim::compile_for_host(std::string(heddle::sim::kLibraryText) + kText);
  if (image.bytes.empty()) return kInternal;
  Handle made;
  if (cuModuleLoadData(&made.module, heddle::sim::wrap_image(image.bytes).data()) != 0)
    return kNotInitialized;
  if (cuModuleGetFunction(&made.kernel, made.module, "heddle_sim_cublaslt") != 0) {
    cuModuleUnload(made.module);
    return kInternal;
  }
  *handle = new Handle(made);
  ++objects();
  return kOk;
}

EXPORT int cublasLtDestroy(void* handle) {
  const auto* made = static_cast<Handle*>(handle);
  const int unloaded = cuModuleUnload(made->module);
  delete made;
  --objects();
  return fails("cublasLtDestroy") || unloaded != 0 ? kInternal : kOk;
}

EXPORT int cublasLtMatmulDescCreate(void** product, int compute, int scale) {
  if (fails("cublasLtMatmulDescCreate")) return kInternal;
  *product = new Product{compute, scale};
  ++objects();
  return kOk;
}
EXPORT int cublasLtMatmulDescDestroy(void* product) {
  delete static_cast<Product*>(product);
  --objects();
  return fails("cublasLtMatmulDescDestroy") ? kInternal : kOk;
}
EXPORT int cublasLtMatmulDescSetAttribute(void* handle, int attribute, const void* value,
                                          std::size_t bytes) {
  if (fails("cublasLtMatmulDescSetAttribute")) return kInternal;
  if (attribute != 3 && attribute != 4) return kBadValue;
  return take(static_cast<Product*>(handle)->transposed[attribute - 3], value, bytes) ? kOk
                                                                                      : kBadValue;
}

EXPORT int cublasLtMatrixLayoutCreate(void** matrix, int type, std::uint64_t rows,
                                      std::uint64_t columns, std::int64_t stride) {
  if (fails("cublasLtMatrixLayoutCreate")) return kInternal;
  if (type != kF32 && type != kF16 && type != kBf16) return kBadValue;
  *matrix =
      new Matrix{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), stride};
  ++objects();
  return kOk;
}
EXPORT int cublasLtMatrixLayoutDestroy(void* matrix) {
  delete static_cast<Matrix*>(matrix);
  --objects();
  return fails("cublasLtMatrixLayoutDestroy") ? kInternal : kOk;
}
EXPORT int cublasLtMatrixLayoutSetAttribute(void* handle, int attribute, const void* value,
                                            std::size_t bytes) {
  if (fails("cublasLtMatrixLayoutSetAttribute")) return kInternal;
  Matrix& matrix = *static_cast<Matrix*>(handle);
  if (attribute == 5) return take(matrix.batches, value, bytes) ? kOk : kBadValue;
  if (attribute == 6) return take(matrix.batch_stride, value, bytes) ? kOk : kBadValue;
  return kBadValue;
}

EXPORT int cublasLtMatmulPreferenceCreate(void** preference) {
  if (fails("cublasLtMatmulPreferenceCreate")) return kInternal;
  *preference = new Preference;
  ++objects();
  return kOk;
}
EXPORT int cublasLtMatmulPreferenceDestroy(void* preference) {
  delete static_cast<Preference*>(preference);
  --objects();
  return fails("cublasLtMatmulPreferenceDestroy") ? kInternal : kOk;
}
EXPORT int cublasLtMatmulPreferenceSetAttribute(void* handle, int attribute, const void* value,
                                                std::size_t bytes) {
  if (fails("cublasLtMatmulPreferenceSetAttribute")) return kInternal;
  Preference& preference = *static_cast<Preference*>(handle);
  if (attribute == 1) return take(preference.workspace_bytes, value, bytes) ? kOk : kBadValue;
  if (attribute == 3) return take(preference.reductions, value, bytes) ? kOk : kBadValue;
  if (attribute < 5 || attribute > 8) return kBadValue;
  return take(preference.alignments[attribute - 5], value, bytes) ? kOk : kBadValue;
}

/// The only way there is, for addresses that are multiples of 16.
EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, void* product_handle, void* a_handle,
                                          void* b_handle, void*, void* d_handle,
                                          void* preference_handle, int most, Found* found,
                                          int* count) {
  if (fails("cublasLtMatmulAlgoGetHeuristic")) return kInternal;
  const auto& product = *static_cast<Product*>(product_handle);
  const auto& a = *static_cast<Matrix*>(a_handle);
  const auto& b = *static_cast<Matrix*>(b_handle);
  const auto& d = *static_cast<Matrix*>(d_handle);
  const auto& preference = *static_cast<Preference*>(preference_handle);
  *count = 0;
  if (!fit(product, a, b, d) || most < 1) return kBadValue;
  const std::size_t needed = depth_of(product, a) < kDeep ? 0 : kWorkspaceBytes;
  if (!is_known(product, a, b, d) || preference.workspace_bytes < needed) return kNotDone;
  for (const std::uint32_t alignment : preference.alignments)
    if (alignment < 16) return kNotDone;
  *found = {};
  found->algorithm.data[0] = kChosen;
  found->algorithm.data[1] = preference.reductions & (kInPlace | kInOutputType);
  found->workspace_bytes = needed;
  *count = 1;
  return kOk;
}

EXPORT int cublasLtMatmul(void* handle, void* product_handle, const void* alpha,
                          const void* a_address, void* a_handle, const void* b_address,
                          void* b_handle, const void* beta, const void* c_address, void*,
                          void* d_address, void* d_handle, const Algorithm* algorithm,
                          void* workspace, std::size_t workspace_bytes, void* stream) {
  if (fails("cublasLtMatmul")) return kExecutionFailed;
  const auto& product = *static_cast<Product*>(product_handle);
  const auto& a = *static_cast<Matrix*>(a_handle);
  const auto& b = *static_cast<Matrix*>(b_handle);
  const auto& d = *static_cast<Matrix*>(d_handle);
  float one = 0;
  float zero = 1;
  std::memcpy(&one, alpha, sizeof one);
  std::memcpy(&zero, beta, sizeof zero);
  std::int64_t depth = depth_of(product, a);
  const std::size_t needed = depth < kDeep ? 0 : kWorkspaceBytes;
  if (!fit(product, a, b, d) || algorithm->data[0] != kChosen || workspace_bytes < needed ||
      one != 1 || zero != 0 || c_address != d_address)
    return kBadValue;
  for (const void* address : {a_address, b_address, static_cast<const void*>(d_address)})
    if (address == nullptr || !is_aligned(address)) return kBadValue;
  if (needed == 0) workspace = nullptr;
  if (needed != 0 && cuMemsetD8Async(workspace, 0, needed, stream) != 0) return kExecutionFailed;
  const bool ta = product.transposed[0] != 0;
  const bool tb = product.transposed[1] != 0;
  std::int64_t m = d.rows, n = d.columns, batches = d.batches;
  std::int64_t a_row = ta ? a.stride : 1, a_column = ta ? 1 : a.stride;
  std::int64_t b_row = tb ? b.stride : 1, b_column = tb ? 1 : b.stride;
  std::int64_t a_batch = a.batch_stride, b_batch = b.batch_stride;
  std::int64_t d_column = d.stride, d_batch = d.batch_stride;
  int type = a.type, d_type = d.type;
  // Of deep products the library may add up the halves in the result's type, if it is let.
  int narrow = needed != 0 && algorithm->data[1] != 0 ? 1 : 0;
  void* arguments[] = {&a_address, &b_address, &d_address, &workspace, &m,     &n,        &depth,
                       &batches,   &a_row,     &a_column,  &a_batch,   &b_row, &b_column, &b_batch,
                       &d_column,  &d_batch,   &type,      &d_type,    &narrow};
  const int launched = cuLaunchKernel(static_cast<Handle*>(handle)->kernel, 2, 1, 1, 32, 1, 1, 0,
                                      stream, arguments, nullptr);
  return launched == 0 ? kOk : kExecutionFailed;
}
