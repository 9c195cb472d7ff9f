#include "jit/cuda/library_product.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "jit/cuda/element_text.h"
#include "jit/cuda/prelude.h"
#include "jit/cuda/scalar_text.h"
#include "jit/cuda/statement_emitter.h"
#include "jit/cuda/text_writer.h"
#include "jit/lower/index.h"
#include "jit/lower/nest_scalars.h"

namespace heddle::jit::cuda {

using device::cuda::LibraryConvolution;
using device::cuda::LibraryMatrix;
using device::cuda::LibraryPlan;
using device::cuda::LibraryProduct;
using device::cuda::LibraryTensor;
using device::cuda::OptionalLibrary;
using Convolution = LibraryForm::Convolution;
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

/// The store of the sums, if nothing is done to them but that they are rounded to the result's dtype.
const StoreStmt* plain_store(const ProductParts& parts) {
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
      return nullptr;
    }
  }
  if (store == nullptr) return nullptr;
  const DType dtype = parts.nest->buffers[store->buffer].dtype;
  return dtype == DType::F32 || dtype == parts.left_dtype() ? store : nullptr;
}

std::optional<Matrix> plain_result(const ProductParts& parts) {
  const ProductForm& form = *parts.nest->product;
  const StoreStmt* store = plain_store(parts);
  if (store == nullptr) return std::nullopt;
  Matrix matrix;
  matrix.buffer = store->buffer;
  SymExpr rest = store->index;
  if (!take_out_of(rest, parts.columns->axis, 1) || !take_out_of(rest, form.column_begin, 1) ||
      !take_out(rest, parts.rows->axis, matrix.stride) ||
      !take_out_of(rest, form.row_begin, matrix.stride) || !take_batch(rest, form, matrix))
    return std::nullopt;
  return matrix;
}

std::int64_t taps_of(const std::vector<WindowAxis>& axes) {
  std::int64_t taps = 1;
  for (const WindowAxis& axis : axes) taps *= axis.taps;
  return taps;
}

SymExpr windows_of(const std::vector<WindowAxis>& axes) {
  SymExpr windows = 1;
  for (const WindowAxis& axis : axes) windows *= axis.windows;
  return windows;
}

/// The place of an element of a tensor [N, M, out...] or [N, out..., M], row-major.
/// @param out  windows in each direction, or of all as one: simplified, the place may have either form
SymExpr place_in_result(const ProductParts& parts, const Convolution& convolution,
                        std::span<const SymExpr> out) {
  const ProductForm& form = *parts.nest->product;
  const SymExpr images =
      same(form.columns, windows_of(convolution.axes), parts.nest->facts) ? 1 : 2;  // any number
  std::vector<SymExpr> sizes = {images};
  sizes.insert(sizes.end(), out.begin(), out.end());
  const SymExpr column = form.column_begin + SymExpr(parts.columns->axis);
  Index index = delinearize(column, sizes, parts.nest->facts);
  const auto channels = convolution.channels_last ? index.end() : index.begin() + 1;
  const auto channel_sizes = convolution.channels_last ? sizes.end() : sizes.begin() + 1;
  index.insert(channels,
               form.batch * form.rows + SymExpr(form.row_begin) + SymExpr(parts.rows->axis));
  sizes.insert(channel_sizes, form.batches * form.rows);
  return linear_index(index, sizes);
}

/// Whether all that is done to sums is done to what they are when rounded to the operands' dtype.
bool are_rounded(const ProductParts& parts) {
  std::set<ScalarId> sums;
  bool rounded = true;
  Block body = *parts.columns->body;
  for (Stmt& statement : body) {
    const auto* convert = std::get_if<ConvertStmt>(&statement.node);
    const bool rounds = convert != nullptr && convert->dtype == parts.left_dtype();
    std::visit(
        [&](auto& node) {
          visit_uses(node,
                     [&](ScalarId id) { rounded = rounded && (rounds || !sums.contains(id)); });
        },
        statement.node);
    const auto* load = std::get_if<LoadStmt>(&statement.node);
    if (load != nullptr && load->buffer == parts.contract->acc) sums.insert(load->result);
  }
  return rounded;
}

bool sums_are_rounded(const ProductParts& parts) {
  return parts.left_dtype() != DType::F32 && are_rounded(parts);
}

/// Of weights that lie in one piece, a group after the other.
std::optional<LibraryForm> convolution_form(const ProductParts& parts) {
  const ProductForm& form = *parts.nest->product;
  const TileOperand& images = parts.contract->b;
  const std::vector<WindowAxis>& axes = images.windows->axes;
  const auto weights = operand(parts.contract->a, form, true);
  Matrix first;
  first.buffer = images.buffer;
  if (!weights || !weights->along_rows || !parts.contract->depth.is_constant() ||
      images.windows->first != SymExpr(form.column_begin) || !take_batch(images.base, form, first))
    return std::nullopt;
  Convolution convolution;
  convolution.channels = parts.contract->depth.constant() / taps_of(axes);
  convolution.image_stride = images.column_stride;
  convolution.channel_stride = images.row_stride;
  convolution.axes = axes;
  convolution.channels_last = images.row_stride.is_constant(1);
  convolution.inner_channels = images.windows->channels != 0;
  LibraryForm whole{*weights, first,      parts.contract->tf32, sums_are_rounded(parts),
                    {},       convolution};
  const StoreStmt* store = plain_store(parts);
  std::vector<SymExpr> out;
  for (const WindowAxis& axis : axes) out.push_back(axis.windows);
  const SymExpr together[] = {windows_of(axes)};
  const auto is_at = [&](std::span<const SymExpr> windows) {
    return same(store->index, place_in_result(parts, convolution, windows), parts.nest->facts);
  };
  if (store != nullptr && (is_at(out) || is_at(together))) {
    Matrix result;
    result.buffer = store->buffer;
    whole.result = std::move(result);
  }
  return whole;
}

class LibraryWriter : private TextWriter {
 public:
  LibraryWriter(const ProductParts& parts, const LibraryForm& library)
      : parts_(parts),
        nest_(*parts.nest),
        form_(*nest_.product),
        library_(library),
        block_(block_of(parts)),
        wide_(nest_, parts.columns->axis, block_, 8, parts.contract->acc) {}

  /// Elements that a thread takes at a time.
  int width() const { return library_.convolution ? 1 : wide_.width(); }

  std::string body() {
    line("const long long rows = " + index(form_.rows) + ";");
    line("const long long columns = " + index(form_.columns) + ";");
    line("const long long all = rows * columns * (" + index(form_.batches) + ");");
    if (width() > 1) {
      open("if (columns % " + number(width()) + " == 0)");
      neighbours(wide_);
      line("return;");
      close();
    }
    open(
        "for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < all; e += (long "
        "long)gridDim.x * blockDim.x)");
    if (library_.convolution) {
      place_of_window(*library_.convolution);
    } else {
      define(form_.batch, "e / (rows * columns)");
      define(parts_.rows->axis, "e / columns % rows");
      define(parts_.columns->axis, "e % columns");
    }
    line("const long long " + form_.row_begin.to_string() + " = 0, " +
         form_.column_begin.to_string() + " = 0;");
    StatementEmitter statements(nest_, Mapping::Flat, {});
    statements.replace_loads(parts_.contract->acc, sum("e"));
    text_ += statements.emit(block_, depth_);
    close();
    return std::move(text_);
  }

 private:
  std::string index(const SymExpr& expr) const { return index_text(expr, nest_.facts); }
  void define(const Symbol& symbol, const std::string& value) {
    line("const long long " + symbol.to_string() + " = " + value + ";");
  }

  static Block block_of(const ProductParts& parts) {
    Block block;
    for (const auto* list : {&parts.before, &parts.of_row})
      for (const Stmt* statement : *list) block.push_back(*statement);
    block.insert(block.end(), parts.columns->body->begin(), parts.columns->body->end());
    return block;
  }

  /// Several elements of a row at a time.
  void neighbours(const ElementText& elements) {
    const std::string width = number(elements.width());
    line("const long long chunks = (columns + " + number(elements.width() - 1) + ") / " + width +
         ";");
    line("const long long all_chunks = rows * chunks * (" + index(form_.batches) + ");");
    open(
        "for (long long e = (long long)blockIdx.x * blockDim.x + threadIdx.x; e < all_chunks; e += "
        "(long long)gridDim.x * blockDim.x)");
    define(form_.batch, "e / (rows * chunks)");
    define(parts_.rows->axis, "e / chunks % rows");
    line("const long long first = e % chunks * " + width + ";");
    line("const long long row_at = e / chunks * columns;");
    line("const long long " + form_.row_begin.to_string() + " = 0, " +
         form_.column_begin.to_string() + " = 0;");
    StatementEmitter statements(nest_, Mapping::Flat, {});
    const std::string type = storage_type(sum_dtype());
    const std::string prepare = "const hd_lanes<" + type + ", " + width + "> own = hd_read_lanes<" +
                                width + ">((const " + type + "*)scratch + row_at + first);";
    text_ += elements.text(statements, depth_, "first", "(columns - first)", prepare,
                           loaded_text(sum_dtype(), "own.at[lane]"),
                           sum("row_at + " + parts_.columns->axis.to_string()));
    close();
  }

  /// Neighbours of sums are those of the result, most likely: channels, or windows of an image.
  void place_of_window(const Convolution& convolution) {
    line("const long long channels = rows * (" + index(form_.batches) + ");");
    if (convolution.channels_last) {
      line("const long long channel = e % channels;");
      define(parts_.columns->axis, "e / channels");
    } else {
      line("const long long windows = " + index(windows_of(convolution.axes)) + ";");
      line("const long long channel = e / windows % channels;");
      define(parts_.columns->axis, "e / (windows * channels) * windows + e % windows");
    }
    define(form_.batch, "channel / rows");
    define(parts_.rows->axis, "channel % rows");
  }

  std::string sum(const std::string& place) const {
    return loaded_text(sum_dtype(),
                       "((const " + storage_type(sum_dtype()) + "*)scratch)[" + place + "]");
  }

  DType sum_dtype() const { return library_.rounded ? parts_.left_dtype() : DType::F32; }

  const ProductParts& parts_;
  const Nest& nest_;
  const ProductForm& form_;
  const LibraryForm& library_;
  const Block block_;
  const ElementText wide_;
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
  return reinterpret_cast<std::uintptr_t>(address) % OptionalLibrary::kAlignment == 0;
}

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

/// Of [N, M, out...], row-major as it is or with channels as the innermost ones.
std::vector<std::int64_t> strides_of(std::span<const std::int64_t> sizes, bool channels_last) {
  std::vector<std::int64_t> strides(sizes.size(), 1);
  std::int64_t stride = channels_last ? sizes[1] : 1;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    if (channels_last && d == 1) continue;
    strides[d] = stride;
    stride *= sizes[d];
  }
  return strides;
}

/// What a form is at some sizes.
class FormAtSizes {
 public:
  FormAtSizes(const CudaCode& code, std::span<const std::int64_t> sizes)
      : code_(code), form_(*code.library), sizes_(sizes), shape_(code.shape(sizes)) {}

  /// Whether there is anything to do, in numbers that libraries take.
  bool is_sound() const {
    for (const std::int64_t extent : {shape_.batches, shape_.rows, shape_.columns, shape_.depth})
      if (extent <= 0 || extent > std::numeric_limits<std::int32_t>::max()) return false;
    return is_aligned(form_.left) && is_aligned(form_.right) &&
           (!form_.result || is_aligned(*form_.result));
  }
  std::int64_t offset(const Matrix& matrix) const {
    return matrix.offset.evaluate_sizes(sizes_) *
           static_cast<std::int64_t>(size_of(code_.buffers[matrix.buffer].dtype));
  }
  std::int64_t sums() const { return shape_.batches * shape_.rows * shape_.columns; }
  DType result_dtype(bool direct) const {
    if (direct) return code_.buffers[form_.result->buffer].dtype;
    return form_.rounded ? code_.dtype : DType::F32;
  }

  /// @param direct  in: whether the result may be where it belongs; out: whether it is.
  std::optional<LibraryProduct> product(bool& direct) const {
    LibraryProduct product{.dtype = code_.dtype,
                           .tf32 = form_.tf32,
                           .batches = shape_.batches,
                           .rows = shape_.rows,
                           .columns = shape_.columns,
                           .depth = shape_.depth};
    const auto left = at(form_.left, shape_.rows, shape_.depth, shape_.batches, sizes_);
    const auto right = at(form_.right, shape_.depth, shape_.columns, shape_.batches, sizes_);
    if (!left || !right) return std::nullopt;
    product.left = *left;
    product.right = *right;
    product.result = {true, shape_.columns, shape_.rows * shape_.columns};
    const auto result = direct
                            ? at(*form_.result, shape_.rows, shape_.columns, shape_.batches, sizes_)
                            : std::nullopt;
    direct = result.has_value();
    if (direct) product.result = *result;
    product.result_dtype = result_dtype(direct);
    return product;
  }

  std::optional<LibraryConvolution> convolution() const {
    const Convolution& from = *form_.convolution;
    LibraryConvolution to{.dtype = code_.dtype,
                          .result_dtype = result_dtype(form_.result.has_value()),
                          .tf32 = form_.tf32};
    const std::int64_t windows = value(windows_of(from.axes));
    const std::int64_t channels = shape_.batches * shape_.rows;
    to.images = {{shape_.columns / windows, shape_.batches * from.channels},
                 {value(from.image_stride), value(from.channel_stride)}};
    const std::int64_t of_tap = from.inner_channels ? from.channels : 1;
    to.weights = {{channels, from.channels},
                  {value(form_.left.stride), from.inner_channels ? 1 : taps_of(from.axes)}};
    to.result.sizes = {shape_.columns / windows, channels};
    std::int64_t taps = taps_of(from.axes);
    for (const WindowAxis& axis : from.axes) {
      taps /= axis.taps;
      if (!add(axis, taps * of_tap, to)) return std::nullopt;
    }
    to.result.strides = strides_of(to.result.sizes, from.channels_last);
    spread(to.images);
    return are_even(to) && groups_follow(to) ? std::optional(std::move(to)) : std::nullopt;
  }

 private:
  std::int64_t value(const SymExpr& expr) const { return expr.evaluate_sizes(sizes_); }
  bool is_aligned(const Matrix& matrix) const {
    return offset(matrix) % static_cast<std::int64_t>(OptionalLibrary::kAlignment) == 0;
  }

  /// What images have after their last window is no padding but left out: as much of it as before them, where that gives as many
  /// windows, since more is done for that, or as much as the last window takes.
  bool add(const WindowAxis& axis, std::int64_t inner_taps, LibraryConvolution& to) const {
    const std::int64_t windows = value(axis.windows);
    const std::int64_t size = value(axis.size);
    const std::int64_t window = (axis.taps - 1) * axis.dilation + 1;
    const auto fits = [&](std::int64_t after) {
      const std::int64_t room = size + axis.pad + after - window;
      return after >= 0 && room >= 0 && room / axis.stride + 1 == windows;
    };
    const std::int64_t least = (windows - 1) * axis.stride + window - size - axis.pad;
    const std::int64_t after = fits(axis.pad) ? axis.pad : std::max<std::int64_t>(least, 0);
    if (axis.pad < 0 || !fits(after)) return false;
    to.images.sizes.push_back(size);
    to.images.strides.push_back(value(axis.memory_stride));
    to.weights.sizes.push_back(axis.taps);
    to.weights.strides.push_back(inner_taps);
    to.result.sizes.push_back(windows);
    to.axes.push_back({axis.stride, axis.dilation, axis.pad, after});
    return true;
  }

  /// Gives dimensions of one element, whose strides may be anything, those of dimensions outside of all others.
  static void spread(LibraryTensor& tensor) {
    std::int64_t all = 1;
    for (std::size_t d = 0; d < tensor.sizes.size(); ++d)
      if (tensor.sizes[d] != 1) all = std::max(all, tensor.sizes[d] * tensor.strides[d]);
    for (std::size_t d = 0; d < tensor.sizes.size(); ++d)
      if (tensor.sizes[d] == 1 && tensor.strides[d] <= 0) tensor.strides[d] = all;
  }

  /// Numbers that the library takes: of 32 bits, with strides that are there.
  static bool are_even(const LibraryConvolution& convolution) {
    for (const LibraryTensor* tensor :
         {&convolution.images, &convolution.weights, &convolution.result})
      for (const auto* list : {&tensor->sizes, &tensor->strides})
        for (const std::int64_t number : *list)
          if (number <= 0 || number > std::numeric_limits<std::int32_t>::max()) return false;
    return true;
  }
  /// Groups have channels behind each other, of images and of weights.
  bool groups_follow(const LibraryConvolution& convolution) const {
    return shape_.batches == 1 ||
           (value(form_.left.batch_stride) == shape_.rows * convolution.weights.strides[0] &&
            value(form_.right.batch_stride) ==
                convolution.weights.sizes[1] * convolution.images.strides[1]);
  }

  const CudaCode& code_;
  const LibraryForm& form_;
  std::span<const std::int64_t> sizes_;
  const ProductShape shape_;
};

}  // namespace

OptionalLibrary& Libraries::of(const LibraryForm& form) {
  if (form.convolution) return cudnn;
  return cublaslt;
}

std::optional<LibraryForm> library_form(const ProductParts& parts) {
  if (parts.contract->dtype != DType::F32) return std::nullopt;
  if (parts.contract->b.windows) return convolution_form(parts);
  const ProductForm& form = *parts.nest->product;
  if (form.groups || parts.contract->b.dequantised) return std::nullopt;
  const auto left = operand(parts.contract->a, form, true);
  const auto right = operand(parts.contract->b, form, false);
  if (!left || !right) return std::nullopt;
  return LibraryForm{
      *left, *right, parts.contract->tf32, sums_are_rounded(parts), plain_result(parts), {}};
}

CudaSource emit_after_library(const ProductParts& parts, const LibraryForm& form,
                              const CudaOptions& options) {
  const Nest& nest = *parts.nest;
  const ProductForm& product = *nest.product;
  CudaSource source;
  source.variant = form.convolution ? "cudnn" : "cublaslt";
  source.entry = entry_name(nest.name + "_" + source.variant);
  source.block_threads = kThreads;
  source.part_bytes = 1;
  LibraryWriter writer(parts, form);
  source.blocks = min(ceildiv(product.batches * product.rows * product.columns,
                              std::int64_t{kThreads} * writer.width()),
                      options.max_blocks);
  source.kernel = kernel_head(source, parameters_text(nest, true, true)) + writer.body() + "}\n";
  source.text = prelude_for(source.kernel) + source.kernel;
  return source;
}

bool LibraryCall::is_known(const Libraries& libraries, const CudaCode& code,
                           std::span<const std::int64_t> sizes) {
  if (!code.library->convolution) return true;
  const FormAtSizes form(code, sizes);
  const auto convolution = form.is_sound() ? form.convolution() : std::nullopt;
  return !convolution || libraries.cudnn.knows(*convolution);
}

std::shared_ptr<const LibraryCall> LibraryCall::make(const Libraries& libraries,
                                                     const CudaCode& code,
                                                     std::span<const std::int64_t> sizes) {
  const LibraryForm& form = *code.library;
  const FormAtSizes at_sizes(code, sizes);
  if (!at_sizes.is_sound()) return nullptr;
  bool direct = form.result.has_value();
  const auto convolution = form.convolution ? at_sizes.convolution() : std::nullopt;
  const auto product = form.convolution ? std::nullopt : at_sizes.product(direct);
  if (!convolution && !product) return nullptr;
  auto call = std::make_shared<LibraryCall>();
  call->direct_ = direct;
  if (!direct)
    call->sums_bytes_ =
        aligned(at_sizes.sums() * static_cast<std::int64_t>(size_of(at_sizes.result_dtype(false))));
  if (call->sums_bytes_ > kMostSums) return nullptr;
  call->plan_ =
      convolution ? libraries.cudnn.plan(*convolution) : libraries.cublaslt.plan(*product);
  if (call->plan_ == nullptr) return nullptr;
  call->workspace_bytes_ = static_cast<std::int64_t>(call->plan_->workspace_bytes());
  const auto place = [&](const Matrix& matrix) {
    return Place{matrix.buffer, at_sizes.offset(matrix)};
  };
  call->left_ = place(form.left);
  call->right_ = place(form.right);
  if (direct) call->result_ = place(*form.result);
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
