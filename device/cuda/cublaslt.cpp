#include "device/cuda/cublaslt.h"

#include <utility>

#include "device/cuda/dynamic_library.h"
#include "heddle/error.h"

namespace heddle::device::cuda {
namespace {

// Numbers of cublasLt.h, cublas_api.h and library_types.h.
constexpr int kNotSupported = 15;
constexpr int kRealF32 = 0;
constexpr int kRealF16 = 2;
constexpr int kRealBf16 = 14;
constexpr int kComputeF32 = 68;
constexpr int kComputeTf32 = 77;
constexpr int kTransposeLeft = 3;  // attributes of a product
constexpr int kTransposeRight = 4;
constexpr int kBatchCount = 5;  // of a matrix
constexpr int kBatchStride = 6;
constexpr int kMostWorkspaceBytes = 1;  // of preferences
constexpr int kReductions = 3;
constexpr int kAlignments[] = {5, 6, 7, 8};
constexpr std::int32_t kTransposed = 1;
/// How parts of a sum are added up: in what is computed with, not in the result's dtype.
constexpr std::uint32_t kReducedInComputeType = 2;

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
static_assert(sizeof(Found) == 96);

int number_of(DType dtype) {
  return dtype == DType::F16 ? kRealF16 : dtype == DType::BF16 ? kRealBf16 : kRealF32;
}

/// Functions by their names without the prefix cublasLt; a result of 0 is success.
struct Api {
  explicit Api(const std::vector<std::string>& paths) : library("cuBLASLt", paths) {
    library.load(create, "cublasLtCreate");
    library.load(destroy, "cublasLtDestroy");
    library.load(status_name, "cublasLtGetStatusName");
    library.load(product_create, "cublasLtMatmulDescCreate");
    library.load(product_destroy, "cublasLtMatmulDescDestroy");
    library.load(product_set, "cublasLtMatmulDescSetAttribute");
    library.load(matrix_create, "cublasLtMatrixLayoutCreate");
    library.load(matrix_destroy, "cublasLtMatrixLayoutDestroy");
    library.load(matrix_set, "cublasLtMatrixLayoutSetAttribute");
    library.load(preference_create, "cublasLtMatmulPreferenceCreate");
    library.load(preference_destroy, "cublasLtMatmulPreferenceDestroy");
    library.load(preference_set, "cublasLtMatmulPreferenceSetAttribute");
    library.load(find, "cublasLtMatmulAlgoGetHeuristic");
    library.load(multiply, "cublasLtMatmul");
  }

  void check(int status, const char* function) const {
    if (status == 0) return;
    throw DeviceError({.what = std::string(function) + " failed",
                       .where = library.path(),
                       .expected = {},
                       .got = status_name(status)});
  }

  DynamicLibrary library;
  int (*create)(void** handle) = nullptr;
  int (*destroy)(void* handle) = nullptr;
  const char* (*status_name)(int status) = nullptr;
  int (*product_create)(void** product, int compute, int scale) = nullptr;
  int (*product_destroy)(void* product) = nullptr;
  int (*product_set)(void* product, int attribute, const void* value, std::size_t bytes) = nullptr;
  int (*matrix_create)(void** matrix, int type, std::uint64_t rows, std::uint64_t columns,
                       std::int64_t stride) = nullptr;
  int (*matrix_destroy)(void* matrix) = nullptr;
  int (*matrix_set)(void* matrix, int attribute, const void* value, std::size_t bytes) = nullptr;
  int (*preference_create)(void** preference) = nullptr;
  int (*preference_destroy)(void* preference) = nullptr;
  int (*preference_set)(void* preference, int attribute, const void* value,
                        std::size_t bytes) = nullptr;
  int (*find)(void* handle, void* product, void* a, void* b, void* c, void* d, void* preference,
              int most, Found* found, int* count) = nullptr;
  int (*multiply)(void* handle, void* product, const void* alpha, const void* a_address, void* a,
                  const void* b_address, void* b, const void* beta, const void* c_address, void* c,
                  void* d_address, void* d, const Algorithm* algorithm, void* workspace,
                  std::size_t workspace_bytes, void* stream) = nullptr;
};

/// What one of the library's functions makes and another destroys.
class Made {
 public:
  template <typename Create>
  Made(const Api& api, const char* function, int (*destroy)(void*), Create create)
      : destroy_(destroy) {
    api.check(create(&handle_), function);
  }
  ~Made() { destroy_(handle_); }
  Made(const Made&) = delete;
  Made& operator=(const Made&) = delete;
  void* get() const { return handle_; }

 private:
  int (*destroy_)(void*);
  void* handle_ = nullptr;
};

}  // namespace

std::vector<std::string> cublaslt_paths() {
  return optional_paths("HEDDLE_CUBLASLT_PATH", {"libcublasLt.so.13", "libcublasLt.so.12"});
}

struct CublasLt::Opened {
  Opened(Device& on, const std::vector<std::string>& paths)
      : api(std::make_shared<const Api>(paths)), device(on) {
    device.with_context([&] { api->check(api->create(&handle), "cublasLtCreate"); });
  }
  ~Opened() {
    device.release_with_context([&] { api->destroy(handle); });
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  std::shared_ptr<const Api> api;  ///< plans may outlive the device, and give back what they made
  Device& device;
  void* handle = nullptr;
};

namespace {

/// What makes the library's matrix of one of rows x columns: that has neighbours in a column.
auto make_matrix(const Api& api, DType dtype, const LibraryMatrix& matrix, std::int64_t rows,
                 std::int64_t columns) {
  const auto inner = static_cast<std::uint64_t>(matrix.along_rows ? columns : rows);
  const auto outer = static_cast<std::uint64_t>(matrix.along_rows ? rows : columns);
  return [&api, type = number_of(dtype), inner, outer, stride = matrix.stride](void** made) {
    return api.matrix_create(made, type, inner, outer, stride);
  };
}

/// The library's matrices have neighbours in a column: what is a row here is a column there, and the product is that of
/// the transposed ones, right by left.
class ProductPlan final : public LibraryPlan {
 public:
  ProductPlan(std::shared_ptr<const Api> api, Device& device, void* handle,
              const LibraryProduct& product)
      : shared_api_(std::move(api)),
        device_(device),
        handle_(handle),
        product_(api_, "cublasLtMatmulDescCreate", api_.product_destroy,
                 [&](void** made) {
                   const int compute =
                       product.tf32 && product.dtype == DType::F32 ? kComputeTf32 : kComputeF32;
                   return api_.product_create(made, compute, kRealF32);
                 }),
        right_(api_, "cublasLtMatrixLayoutCreate", api_.matrix_destroy,
               make_matrix(api_, product.dtype, product.right, product.depth, product.columns)),
        left_(api_, "cublasLtMatrixLayoutCreate", api_.matrix_destroy,
              make_matrix(api_, product.dtype, product.left, product.rows, product.depth)),
        result_(api_, "cublasLtMatrixLayoutCreate", api_.matrix_destroy,
                make_matrix(api_, product.result_dtype, product.result, product.rows,
                            product.columns)) {
    transpose(kTransposeLeft, product.right);
    transpose(kTransposeRight, product.left);
    batch(right_, product.right, product.batches);
    batch(left_, product.left, product.batches);
    batch(result_, product.result, product.batches);
  }

  /// @return whether the library has a way to do it.
  bool choose() {
    const Made preference(api_, "cublasLtMatmulPreferenceCreate", api_.preference_destroy,
                          [&](void** made) { return api_.preference_create(made); });
    const auto set = [&](int attribute, const auto& value) {
      api_.check(api_.preference_set(preference.get(), attribute, &value, sizeof value),
                 "cublasLtMatmulPreferenceSetAttribute");
    };
    set(kMostWorkspaceBytes, std::uint64_t{CublasLt::kMostWorkspace});
    set(kReductions, kReducedInComputeType);
    for (const int alignment : kAlignments) set(alignment, std::uint32_t{CublasLt::kAlignment});
    int count = 0;
    const int status = api_.find(handle_, product_.get(), right_.get(), left_.get(), result_.get(),
                                 result_.get(), preference.get(), 1, &found_, &count);
    if (status == kNotSupported) return false;
    api_.check(status, "cublasLtMatmulAlgoGetHeuristic");
    return count == 1 && found_.state == 0;
  }

  std::size_t workspace_bytes() const override { return found_.workspace_bytes; }

  void run(const void* left, const void* right, void* result, void* workspace,
           void* stream) const override {
    const float one = 1;
    const float zero = 0;
    device_.with_context([&] {
      api_.check(api_.multiply(handle_, product_.get(), &one, right, right_.get(), left,
                               left_.get(), &zero, result, result_.get(), result, result_.get(),
                               &found_.algorithm, workspace, found_.workspace_bytes, stream),
                 "cublasLtMatmul");
    });
  }

 private:
  void transpose(int attribute, const LibraryMatrix& matrix) {
    if (matrix.along_rows) return;
    api_.check(api_.product_set(product_.get(), attribute, &kTransposed, sizeof kTransposed),
               "cublasLtMatmulDescSetAttribute");
  }
  void batch(const Made& made, const LibraryMatrix& matrix, std::int64_t batches) {
    if (batches == 1) return;
    const auto count = static_cast<std::int32_t>(batches);
    api_.check(api_.matrix_set(made.get(), kBatchCount, &count, sizeof count),
               "cublasLtMatrixLayoutSetAttribute");
    api_.check(
        api_.matrix_set(made.get(), kBatchStride, &matrix.batch_stride, sizeof matrix.batch_stride),
        "cublasLtMatrixLayoutSetAttribute");
  }

  const std::shared_ptr<const Api> shared_api_;
  const Api& api_ = *shared_api_;
  Device& device_;
  void* handle_;
  Made product_, right_, left_, result_;
  Found found_{};
};

}  // namespace

CublasLt::CublasLt(Device& device, std::vector<std::string> paths)
    : OptionalLibrary("cuBLASLt", device, std::move(paths)) {}
CublasLt::~CublasLt() = default;

void CublasLt::load() { opened_ = std::make_shared<Opened>(device_, paths_); }

std::shared_ptr<const LibraryPlan> CublasLt::plan(const LibraryProduct& product) const {
  std::shared_ptr<const LibraryPlan> plan;
  device_.with_context([&] {
    auto made = std::make_shared<ProductPlan>(opened_->api, device_, opened_->handle, product);
    if (made->choose()) plan = std::move(made);
  });
  return plan;
}

}  // namespace heddle::device::cuda
