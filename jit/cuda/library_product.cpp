#include "jit/cuda/library_product.h"

#include <algorithm>
#include <limits>

#include "jit/cuda/prelude.h"
#include "jit/cuda/scalar_text.h"
#include "jit/cuda/statement_emitter.h"
#include "jit/cuda/text_writer.h"

namespace heddle::jit::cuda {

using device::cuda::CublasLt;
using device::cuda::LibraryMatrix;
using device::cuda::LibraryProduct;
using Matrix = LibraryForm::Matrix;

namespace {

constexpr std::int64_t kAlignment = 256;
constexpr std::uint32_t kThreads = 256;

/// Takes `coefficient * symbol` out of `expr`. False where it is not linear in the symbol.
bool take_out(SymExpr& expr, Symbol symbol, SymExpr& coefficient) {
  const auto linear = expr.linear_in(symbol);
  if (!linear) return false;
  coefficient = linear->coefficient;
  expr = linear->rest;
  return true;
}

/// The same where it has to be this coefficient.
bool take_out_of(SymExpr& expr, Symbol symbol, const SymExpr& coefficient) {
  SymExpr found = 0;
  return take_out(expr, symbol, found) && found == coefficient;
}

/// What is left of a place when nothing of the tile is: the batch, and where the first matrix begins.
bool take_batch(SymExpr rest, const ProductForm& form, Matrix& matrix) {
  if (form.batches.is_constant(1)) rest = rest.substitute({{form.batch, SymExpr(0)}});
  if (!take_out(rest, form.batch, matrix.batch_stride)) return false;
  matrix.offset = std::move(rest);
  return !matrix.offset.mentions(form.row_begin) && !matrix.offset.mentions(form.column_begin);
}

std::optional<Matrix> operand(const TileOperand& from, const ProductForm& form, bool is_left) {
  Matrix matrix;
  matrix.buffer = from.buffer;
  matrix.along_rows = from.column_stride.is_constant(1);
  if (!matrix.along_rows && !from.row_stride.is_constant(1)) return std::nullopt;
  matrix.stride = matrix.along_rows ? from.row_stride : from.column_stride;
  SymExpr rest = from.base;
  const Symbol begin = is_left ? form.row_begin : form.column_begin;
  const SymExpr& step = is_left ? from.row_stride : from.column_stride;
  if (!take_out_of(rest, begin, step) || !take_batch(rest, form, matrix)) return std::nullopt;
  return matrix;
}

/// Where the sums are stored, if nothing is done to them but that they are rounded to the result's dtype.
std::optional<Matrix> plain_result(const ProductParts& parts) {
  const Nest& nest = *parts.nest;
  const ProductForm& form = *nest.product;
  const StoreStmt* store = nullptr;
  ScalarId value = kNoScalar;
  bool is_rounded = false;
  for (const Stmt& statement : *parts.columns->body) {
    if (const auto* load = std::get_if<LoadStmt>(&statement.node);
        load != nullptr && load->buffer == parts.contract->acc && value == kNoScalar) {
      value = load->result;
    } else if (const auto* convert = std::get_if<ConvertStmt>(&statement.node);
               convert != nullptr && convert->operand == value && !is_rounded) {
      value = convert->result;
      is_rounded = true;
    } else if (store = std::get_if<StoreStmt>(&statement.node);
               store == nullptr || store->operand != value || store->mask != kNoScalar ||
               store->combine || &statement != &parts.columns->body->back()) {
      return std::nullopt;
    }
  }
  if (store == nullptr) return std::nullopt;
  const DType dtype = nest.buffers[store->buffer].dtype;
  if (dtype != DType::F32 && dtype != parts.left_dtype()) return std::nullopt;
  Matrix matrix;
  matrix.buffer = store->buffer;
  SymExpr rest = store->index;
  if (!take_out_of(rest, parts.columns->axis, 1) || !take_out_of(rest, form.column_begin, 1) ||
      !take_out(rest, parts.rows->axis, matrix.stride) ||
      !take_out_of(rest, form.row_begin, matrix.stride) || !take_batch(rest, form, matrix))
    return std::nullopt;
  return matrix;
}

class Writer : private TextWriter {
 public:
  explicit Writer(const ProductParts& parts) : parts_(parts), nest_(*parts.nest) {}

  std::string body() {
    const ProductForm& form = *nest_.product;
    line("const long long rows = " + index(form.rows) + ";");
    line("const long long columns = " + index(form.columns) + ";");
    line("const long long all = rows * columns * (" + index(form.batches) + ");");
    open(
        "for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < all; e += (long "
        "long)gridDim.x * blockDim.x)");
    line("const long long " + form.batch.to_string() + " = e / (rows * columns);");
    line("const long long " + parts_.rows->axis.to_string() + " = e / columns % rows;");
    line("const long long " + parts_.columns->axis.to_string() + " = e % columns;");
    line("const long long " + form.row_begin.to_string() + " = 0, " +
         form.column_begin.to_string() + " = 0;");
    StatementEmitter statements(nest_, Mapping::Flat, {});
    statements.replace_loads(parts_.contract->acc, "((const float*)scratch)[e]");
    Block block;
    for (const auto* list : {&parts_.before, &parts_.of_row})
      for (const Stmt* statement : *list) block.push_back(*statement);
    block.insert(block.end(), parts_.columns->body->begin(), parts_.columns->body->end());
    text_ += statements.emit(block, depth_);
    close();
    return std::move(text_);
  }

 private:
  std::string index(const SymExpr& expr) const { return index_text(expr, nest_.facts); }

  const ProductParts& parts_;
  const Nest& nest_;
};

/// At these sizes; nothing where neighbouring rows or columns would overlap.
std::optional<LibraryMatrix> at(const Matrix& matrix, std::int64_t rows, std::int64_t columns,
                                std::int64_t batches, std::span<const std::int64_t> sizes) {
  const std::int64_t inner = matrix.along_rows ? columns : rows;
  const std::int64_t outer = matrix.along_rows ? rows : columns;
  LibraryMatrix result{matrix.along_rows, matrix.stride.evaluate_sizes(sizes),
                       batches == 1 ? 0 : matrix.batch_stride.evaluate_sizes(sizes)};
  if (outer == 1) result.stride = inner;
  const bool fits = result.stride >= inner && result.batch_stride >= 0;
  return fits ? std::optional(result) : std::nullopt;
}

bool is_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % CublasLt::kAlignment == 0;
}

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::optional<LibraryForm> library_form(const ProductParts& parts) {
  if (parts.contract->dtype != DType::F32 || parts.contract->b.windows) return std::nullopt;
  const ProductForm& form = *parts.nest->product;
  if (form.groups) return std::nullopt;
  const auto left = operand(parts.contract->a, form, true);
  const auto right = operand(parts.contract->b, form, false);
  if (!left || !right) return std::nullopt;
  return LibraryForm{*left, *right, parts.contract->tf32, plain_result(parts)};
}

CudaSource emit_after_library(const ProductParts& parts, const CudaOptions& options) {
  const Nest& nest = *parts.nest;
  const ProductForm& form = *nest.product;
  CudaSource source;
  source.variant = "cublaslt";
  source.entry = entry_name(nest.name + "_" + source.variant);
  source.block_threads = kThreads;
  source.part_bytes = 1;
  source.blocks = min(ceildiv(form.batches * form.rows * form.columns, std::int64_t{kThreads}),
                      options.max_blocks);
  source.kernel = "extern \"C\" __global__ void __launch_bounds__(" + std::to_string(kThreads) +
                  ")\n" + source.entry + "(" + parameters_text(nest, true, true) + ") {\n" +
                  Writer(parts).body() + "}\n";
  source.text = prelude_for(source.kernel) + source.kernel;
  return source;
}

std::shared_ptr<const LibraryCall> LibraryCall::make(const CublasLt& library, const CudaCode& code,
                                                     std::span<const std::int64_t> sizes) {
  const LibraryForm& form = *code.library;
  const ProductShape shape = code.shape(sizes);
  LibraryProduct product{.dtype = code.dtype,
                         .tf32 = form.tf32,
                         .batches = shape.batches,
                         .rows = shape.rows,
                         .columns = shape.columns,
                         .depth = shape.depth};
  for (const std::int64_t extent : {shape.batches, shape.rows, shape.columns, shape.depth})
    if (extent <= 0 || extent > std::numeric_limits<std::int32_t>::max()) return nullptr;
  const auto left = at(form.left, shape.rows, shape.depth, shape.batches, sizes);
  const auto right = at(form.right, shape.depth, shape.columns, shape.batches, sizes);
  if (!left || !right) return nullptr;
  product.left = *left;
  product.right = *right;
  auto call = std::make_shared<LibraryCall>();
  if (form.result) {
    const auto result = at(*form.result, shape.rows, shape.columns, shape.batches, sizes);
    call->direct_ = result.has_value();
    if (result) product.result = *result;
  }
  if (call->direct_) {
    product.result_dtype = code.buffers[form.result->buffer].dtype;
  } else {
    product.result = {true, shape.columns, shape.rows * shape.columns};
    call->sums_bytes_ = aligned(shape.batches * shape.rows * shape.columns * 4);
    if (call->sums_bytes_ > kMostSums) return nullptr;
  }
  call->plan_ = library.plan(product);
  if (call->plan_ == nullptr) return nullptr;
  call->workspace_bytes_ = static_cast<std::int64_t>(call->plan_->workspace_bytes());
  const auto place = [&](const Matrix& matrix) {
    return Place{matrix.buffer,
                 matrix.offset.evaluate_sizes(sizes) *
                     static_cast<std::int64_t>(size_of(code.buffers[matrix.buffer].dtype))};
  };
  call->left_ = place(form.left);
  call->right_ = place(form.right);
  if (call->direct_) call->result_ = place(*form.result);
  for (const Place* one : {&call->left_, &call->right_, &call->result_})
    if (one->offset % static_cast<std::int64_t>(CublasLt::kAlignment) != 0) return nullptr;
  return call;
}

bool LibraryCall::takes(std::span<void* const> arguments) const {
  return is_aligned(left_.in(arguments)) && is_aligned(right_.in(arguments)) &&
         (!direct_ || is_aligned(result_.in(arguments)));
}

void LibraryCall::run(std::span<void* const> arguments, void* scratch, void* stream) const {
  plan_->run(left_.in(arguments), right_.in(arguments), direct_ ? result_.in(arguments) : scratch,
             workspace_bytes_ == 0 ? nullptr : static_cast<char*>(scratch) + sums_bytes_, stream);
}

}  // namespace heddle::jit::cuda
