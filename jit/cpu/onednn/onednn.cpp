#include "jit/cpu/onednn/onednn.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <unordered_map>
#include <variant>

#include "base/lasting.h"
#include "heddle/error.h"
#include "jit/cpu/onednn/problem.h"
#include "jit/cpu/onednn/tail.h"
#include "jit/cpu/onednn/winograd.h"

// oneDNN is built on OpenMP; its pool must never start. The setting belongs to the calling thread.
extern "C" void omp_set_num_threads(int count) __attribute__((weak));

namespace heddle::jit::onednn {

namespace {

using dnnl::memory;

void stay_on_this_thread() {
  thread_local const bool done = [] {
    if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

dnnl::engine& cpu_engine() {
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

memory::desc plain(const Ints& sizes) {
  Ints strides(sizes.size(), 1);
  for (std::size_t k = sizes.size(); k-- > 1;)
    strides[k - 1] = strides[k] * std::max<std::int64_t>(1, sizes[k]);
  return {sizes, memory::data_type::f32, strides};
}

memory::desc any(const Ints& sizes) {
  return {sizes, memory::data_type::f32, memory::format_tag::any};
}

/// Sizes [N, C, spatial...] of memory in which the channels lie closest.
memory::desc channels_last(const Ints& sizes) {
  Ints strides(sizes.size(), 1);
  std::int64_t stride = sizes[1];
  for (std::size_t k = sizes.size(); k-- > 2;) {
    strides[k] = stride;
    stride *= std::max<std::int64_t>(1, sizes[k]);
  }
  strides[0] = stride;
  return {sizes, memory::data_type::f32, strides};
}

std::int64_t elements_of(const Ints& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

bool has_subnormals(const float* values, std::int64_t count) {
  using Bits = std::uint32_t __attribute__((vector_size(64), aligned(4)));
  constexpr std::uint32_t kLeastNormal = 0x00800000;
  constexpr std::int64_t kLanes = sizeof(Bits) / sizeof(float);
  Bits found{};
  Bits bits{};
  for (std::int64_t k = 0; k < count; k += kLanes) {
    bits = Bits{};
    std::memcpy(&bits, values + k,
                static_cast<std::size_t>(std::min(kLanes, count - k)) * sizeof(float));
    // Without its sign bit; zero wraps to the largest number.
    found |= ((bits << 1) >> 1) - 1 < kLeastNormal - 1;
  }
  for (std::int64_t lane = 0; lane < kLanes; ++lane)
    if (found[lane] != 0) return true;
  return false;
}

std::int64_t aligned(std::size_t bytes) {
  return static_cast<std::int64_t>((bytes + 63) / 64 * 64);
}

/// Weights that are the same in each run.
struct FixedWeights {
  /// What multiplies them: where the vectors of the epilogue's first operations lie, and their numbers.
  struct Factor {
    const void* operand = nullptr;
    float a = 1;
    friend bool operator==(const Factor&, const Factor&) = default;
  };
  const float* data = nullptr;  ///< row-major; null: given at each call
  std::vector<Factor> factors;
  std::vector<float> scale;  ///< the factors' product by output channel; empty: 1
};

/// Parameters in the layouts that calls want, packed once for each layout: plans for other sizes share them.
/// Kept as long as a call uses them; so long its parameter lives, and no other has its address.
class PackedParameters {
 public:
  static PackedParameters& instance() {
    static auto* const cache = new PackedParameters;
    return *cache;
  }

  /// `weights`, laid out as `given`, in the layout `wanted`.
  std::shared_ptr<const memory> find_or_pack(const FixedWeights& weights, const memory::desc& given,
                                             const memory::desc& wanted) {
    return find_or_make(weights, given, wanted, [&](float* from, memory& packed) {
      memory source(given, cpu_engine(), from);
      dnnl::stream stream(cpu_engine());
      dnnl::reorder(dnnl::reorder::primitive_desc(cpu_engine(), given, cpu_engine(), wanted))
          .execute(stream, source, packed);
      stream.wait();
    });
  }

  /// What `make(weights, packed)` puts into memory of the layout `wanted`.
  template <typename Make>
  std::shared_ptr<const memory> find_or_make(const FixedWeights& weights, const memory::desc& given,
                                             const memory::desc& wanted, Make make) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const auto& entry) { return all_expired(entry.second); });
    std::vector<Entry>& entries = entries_[weights.data];
    for (const Entry& entry : entries) {
      std::shared_ptr<const memory> held = entry.packed.lock();
      if (held && entry.factors == weights.factors && held->get_desc() == wanted) return held;
    }
    const std::unique_ptr<float[]> scaled = scaled_copy(weights, given);
    const std::shared_ptr<memory> packed = lasting(wanted);
    make(scaled == nullptr ? const_cast<float*>(weights.data) : scaled.get(), *packed);
    entries.push_back({weights.factors, packed});
    return packed;
  }

  std::size_t live() {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const auto& [fixed, entries] : entries_)
      for (const Entry& entry : entries) count += entry.packed.expired() ? 0 : 1;
    return count;
  }

 private:
  struct Entry {
    std::vector<FixedWeights::Factor> factors;
    std::weak_ptr<const memory> packed;
  };
  static std::shared_ptr<memory> lasting(const memory::desc& wanted) {
    struct Held {
      std::shared_ptr<void> bytes;
      memory view;
    };
    std::shared_ptr<void> bytes = base::lasting_memory(wanted.get_size());
    const auto held =
        std::make_shared<Held>(Held{bytes, memory(wanted, cpu_engine(), bytes.get())});
    return {held, &held->view};
  }
  static bool all_expired(const std::vector<Entry>& entries) {
    return std::ranges::all_of(entries, [](const Entry& entry) { return entry.packed.expired(); });
  }
  static std::unique_ptr<float[]> scaled_copy(const FixedWeights& weights,
                                              const memory::desc& given) {
    if (weights.scale.empty()) return nullptr;
    const std::size_t count = given.get_size() / sizeof(float);
    const std::size_t each = count / weights.scale.size();
    auto scaled = std::make_unique_for_overwrite<float[]>(count);
    for (std::size_t channel = 0; channel < weights.scale.size(); ++channel) {
      const float scale = weights.scale[channel];
      for (std::size_t k = channel * each; k < (channel + 1) * each; ++k)
        scaled[k] = weights.data[k] * scale;
    }
    return scaled;
  }

  std::mutex mutex_;
  std::unordered_map<const void*, std::vector<Entry>> entries_;
};

/// One primitive: a convolution in the layout that oneDNN likes best, or with channels last. Operands are reordered
/// into scratch where that differs from row-major, fixed weights once.
class Primitive {
 public:
  /// `sums`: adds its result to what lies there; direct ones only.
  Primitive(const Problem& problem, Algorithm algorithm, bool sums, const FixedWeights& weights)
      : problem_(problem), algorithm_(algorithm) {
    const bool last = problem.channels_last;
    source_ = last ? channels_last(problem.x) : plain(problem.x);
    result_ = last ? channels_last(problem.result) : plain(problem.result);
    weights_ = plain(problem.weights);
    bias_ = plain({problem.result[1]});
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (sums) {
      dnnl::post_ops after;
      after.append_sum(1.0f);
      attr.set_post_ops(after);
    }
    primitive_desc_ = descriptor(attr);
    primitive_ = dnnl::convolution_forward(primitive_desc_);
    prepare_reorders(weights);
    reserve();
  }

  std::int64_t scratch_bytes() const { return total_; }

  /// What Winograd's algorithm leaves: [N, channels / 16, positions, 16], in `scratch`.
  const float* blocked(void* scratch) const {
    return reinterpret_cast<const float*>(static_cast<char*>(scratch) + result_offset_);
  }

  void run(void* x, void* given_weights, void* bias, void* out, void* scratch) const {
    dnnl::stream stream(cpu_engine());
    char* at = static_cast<char*>(scratch);
    memory source(source_, cpu_engine(), x);
    if (reorder_source_) {
      memory packed(primitive_desc_.src_desc(), cpu_engine(), at + source_offset_);
      reorder_source_.execute(stream, source, packed);
      source = packed;
    }
    memory weights;
    if (packed_weights_) {
      weights = *packed_weights_;
    } else {
      weights = memory(weights_, cpu_engine(), given_weights);
      if (reorder_weights_) {
        memory packed(primitive_desc_.weights_desc(), cpu_engine(), at + weights_offset_);
        reorder_weights_.execute(stream, weights, packed);
        weights = packed;
      }
    }
    memory target(primitive_desc_.dst_desc(), cpu_engine(),
                  has_other_result() ? at + result_offset_ : out);
    memory pad(primitive_desc_.scratchpad_desc(), cpu_engine(), at + pad_offset_);
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, source},
                                              {DNNL_ARG_WEIGHTS, weights},
                                              {DNNL_ARG_DST, target},
                                              {DNNL_ARG_SCRATCHPAD, pad}};
    if (problem_.has_bias) arguments.emplace(DNNL_ARG_BIAS, memory(bias_, cpu_engine(), bias));
    primitive_.execute(stream, arguments);
    if (reorder_result_) {
      memory final_result(result_, cpu_engine(), out);
      reorder_result_.execute(stream, target, final_result);
    }
    stream.wait();
  }

 private:
  bool is_winograd() const { return algorithm_ == Algorithm::Winograd; }
  bool has_other_result() const { return is_winograd() || reorder_result_; }

  dnnl::convolution_forward::primitive_desc descriptor(const dnnl::primitive_attr& attr) const {
    const bool as_given = problem_.channels_last && !is_winograd();
    const memory::desc x = as_given ? source_ : any(problem_.x);
    const memory::desc out = as_given ? result_ : any(problem_.result);
    const memory::desc weights = any(problem_.weights);
    const auto kind = dnnl::prop_kind::forward_inference;
    const auto algorithm =
        is_winograd() ? dnnl::algorithm::convolution_winograd : dnnl::algorithm::convolution_direct;
    const Problem& p = problem_;
    const dnnl::convolution_forward::desc desc =
        p.has_bias
            ? dnnl::convolution_forward::desc(kind, algorithm, x, weights, bias_, out, p.strides,
                                              p.dilations, p.pads_low, p.pads_high)
            : dnnl::convolution_forward::desc(kind, algorithm, x, weights, out, p.strides,
                                              p.dilations, p.pads_low, p.pads_high);
    if (is_winograd()) return large_tiles(desc, attr);
    return {desc, attr, cpu_engine()};
  }

  /// oneDNN offers F(2x2) first for few tiles; F(4x4), after it, takes a quarter fewer products.
  dnnl::convolution_forward::primitive_desc large_tiles(const dnnl::convolution_forward::desc& desc,
                                                        const dnnl::primitive_attr& attr) const {
    dnnl::convolution_forward::primitive_desc found(desc, attr, cpu_engine());
    const memory::desc blocked(problem_.result, memory::data_type::f32,
                               memory::format_tag::nChw16c);
    do {
      const std::string_view name = found.impl_info_str();
      if (name.find("wino_4x3") != std::string_view::npos && found.dst_desc() == blocked)
        return found;
    } while (found.next_impl());
    throw dnnl::error(dnnl_unimplemented, "no Winograd with tiles of 4 x 4");
  }

  void prepare_reorders(const FixedWeights& weights) {
    if (primitive_desc_.src_desc() != source_)
      reorder_source_ = dnnl::reorder(dnnl::reorder::primitive_desc(
          cpu_engine(), source_, cpu_engine(), primitive_desc_.src_desc()));
    if (primitive_desc_.dst_desc() != result_ && !is_winograd())
      reorder_result_ = dnnl::reorder(dnnl::reorder::primitive_desc(
          cpu_engine(), primitive_desc_.dst_desc(), cpu_engine(), result_));
    const memory::desc wanted = primitive_desc_.weights_desc();
    if (weights.data == nullptr) {
      if (wanted != weights_)
        reorder_weights_ = dnnl::reorder(
            dnnl::reorder::primitive_desc(cpu_engine(), weights_, cpu_engine(), wanted));
      return;
    }
    packed_weights_ =
        wanted == weights_ && weights.scale.empty()
            ? std::make_shared<memory>(weights_, cpu_engine(), const_cast<float*>(weights.data))
            : PackedParameters::instance().find_or_pack(weights, weights_, wanted);
  }

  void reserve() {
    const auto take = [&](std::size_t bytes) {
      const std::int64_t at = total_;
      total_ += aligned(bytes);
      return at;
    };
    if (reorder_source_) source_offset_ = take(primitive_desc_.src_desc().get_size());
    if (has_other_result()) result_offset_ = take(primitive_desc_.dst_desc().get_size());
    if (reorder_weights_) weights_offset_ = take(primitive_desc_.weights_desc().get_size());
    pad_offset_ = take(primitive_desc_.scratchpad_desc().get_size());
  }

  Problem problem_;
  Algorithm algorithm_;
  memory::desc source_, weights_, bias_, result_;
  dnnl::convolution_forward::primitive_desc primitive_desc_;
  dnnl::convolution_forward primitive_;
  dnnl::reorder reorder_source_, reorder_weights_, reorder_result_;
  std::shared_ptr<const memory> packed_weights_;
  std::int64_t source_offset_ = 0, weights_offset_ = 0, result_offset_ = 0, pad_offset_ = 0;
  std::int64_t total_ = 0;
};

/// Winograd's algorithm by a kernel of ours, with all that follows it.
class Tiles {
 public:
  Tiles(const Problem& problem, const FixedWeights& weights)
      : problem_(problem),
        weights_(PackedParameters::instance().find_or_make(
            weights, plain(problem.weights), plain(winograd_weights(problem)),
            [&](const float* from, memory& packed) {
              transform_weights(problem, from, static_cast<float*>(packed.get_data_handle()));
            })) {}

  std::int64_t scratch_bytes() const {
    return aligned(static_cast<std::size_t>(winograd_scratch(problem_)));
  }

  void run(const float* x, const float* bias, const float* added, std::span<const TailOp> tail,
           float* out, void* scratch) const {
    run_winograd(problem_, x, static_cast<const float*>(weights_->get_data_handle()), bias, added,
                 tail, out, scratch);
  }

 private:
  Problem problem_;
  std::shared_ptr<const memory> weights_;
};

/// Whether any product is summed: oneDNN takes no tensors without channels.
bool has_products(const Problem& problem) {
  return elements_of(problem.x) != 0 && elements_of(problem.weights) != 0;
}

/// A convolution without products: the bias, or zeros.
class Biases {
 public:
  /// `sums`: adds to what lies there.
  Biases(const Problem& problem, bool sums)
      : channels_(problem.result[1]),
        run_(problem.channels_last
                 ? 1
                 : positions_of(problem) / std::max<std::int64_t>(1, problem.result[0])),
        count_(elements_of(problem.result)),
        sums_(sums) {}

  std::int64_t scratch_bytes() const { return 0; }

  void run(const float* bias, float* out) const {
    for (std::int64_t k = 0; k < count_; ++k) {
      const float value = bias == nullptr ? 0.0f : bias[k / run_ % channels_];
      out[k] = sums_ ? out[k] + value : value;
    }
  }

 private:
  std::int64_t channels_;
  std::int64_t run_;  ///< neighbours of one channel
  std::int64_t count_;
  bool sums_;
};

/// A convolution and its epilogue, which run whole or in parts that several threads may take.
///
/// What scales and shifts channels first by vectors that are the same in each run becomes part of the weights and the
/// bias, and weights are kept from being subnormal. A tensor added next is summed into by the primitive. The rest runs on each part's result while
/// it lies in the cache: oneDNN's own relu would turn NaN into 0.
class Convolution final : public BoundLibraryCall {
 public:
  Convolution(const LibraryCall& call, std::span<const LibraryOperand> operands, int threads)
      : problem_(problem_of(call, operands)), result_buffer_(operands.size() - 1) {
    stay_on_this_thread();
    weights_.data = static_cast<const float*>(operands[1].fixed);
    tail_ = call.epilogue;
    for (const LibraryOperand& operand : operands) is_one_.push_back(is_one(operand));
    fold(operands);
    take_sum();
    lift_subnormals(operands);
    join_lines(operands);
    const bool may = call.winograd && weights_.data != nullptr && has_products(problem_);
    if (may) algorithm_ = algorithm_for(problem_);
    try {
      prepare(threads);
    } catch (const dnnl::error&) {
      if (algorithm_ == Algorithm::Direct) throw;
      algorithm_ = Algorithm::Direct;
      prepare(threads);
    }
  }

  std::int64_t extent() const override { return static_cast<std::int64_t>(parts_.size()); }

  std::int64_t scratch_bytes() const override { return saved_offset_ + saves() * saved_bytes_; }

  void run(void* const* buffers, std::int64_t begin, std::int64_t end,
           void* scratch) const override {
    stay_on_this_thread();
    if (whole_ && begin == 0 && end == extent()) {
      run_part(*whole_, buffers, scratch);
      return;
    }
    for (std::int64_t k = begin; k < end; ++k)
      run_part(parts_[static_cast<std::size_t>(k)], buffers, scratch);
  }

 private:
  struct Part {
    std::variant<Primitive, Tiles, Biases> kernel;
    std::int64_t batch, positions;  ///< of the result
    std::int64_t x_offset, result_offset;
  };

  /// Takes operations on channels from the front of the epilogue into the weights and the bias.
  void fold(std::span<const LibraryOperand> operands) {
    const bool has_bias = problem_.has_bias;
    if (weights_.data == nullptr || (has_bias && operands[2].fixed == nullptr)) return;
    std::size_t folded = 0;
    while (folded < tail_.size() && is_folded(tail_[folded], operands)) ++folded;
    if (folded == 0) return;
    const auto channels = static_cast<std::size_t>(problem_.result[1]);
    weights_.scale.assign(channels, 1.0f);
    bias_.assign(channels, 0.0f);
    const auto* given = has_bias ? static_cast<const float*>(operands[2].fixed) : nullptr;
    if (has_bias) std::copy_n(given, channels, bias_.begin());
    for (std::size_t k = 0; k < folded; ++k) fold(tail_[k], operands);
    tail_.erase(tail_.begin(), tail_.begin() + static_cast<std::ptrdiff_t>(folded));
    problem_.has_bias = true;
  }

  static bool is_one(const LibraryOperand& operand) {
    return std::ranges::all_of(operand.sizes, [](std::int64_t size) { return size == 1; });
  }

  /// The operation with numbers in place of an operand of one element, where that is fixed.
  static EpilogueOp with_number(const EpilogueOp& op, std::span<const LibraryOperand> operands) {
    using Kind = EpilogueOp::Kind;
    const bool by_channel = op.kind == Kind::Scale || op.kind == Kind::Shift;
    if (!by_channel || !is_one(operands[op.operand]) || operands[op.operand].fixed == nullptr)
      return op;
    return line(op.kind, *static_cast<const float*>(operands[op.operand].fixed));
  }
  static EpilogueOp line(EpilogueOp::Kind kind, float number) {
    EpilogueOp op{.kind = EpilogueOp::Kind::Linear};
    (kind == EpilogueOp::Kind::Scale ? op.a : op.b) = number;
    return op;
  }

  /// What multiplies by a number and adds one, several times over, does so once.
  void join_lines(std::span<const LibraryOperand> operands) {
    std::vector<EpilogueOp> joined;
    for (const EpilogueOp& given : tail_) {
      const EpilogueOp op = with_number(given, operands);
      const bool is_line = op.kind == EpilogueOp::Kind::Linear;
      if (is_line && !joined.empty() && joined.back().kind == op.kind) {
        joined.back().a *= op.a;
        joined.back().b = joined.back().b * op.a + op.b;
      } else {
        joined.push_back(op);
      }
    }
    tail_ = std::move(joined);
  }

  static bool is_folded(const EpilogueOp& op, std::span<const LibraryOperand> operands) {
    const bool by_channel =
        op.kind == EpilogueOp::Kind::Scale || op.kind == EpilogueOp::Kind::Shift;
    return op.kind == EpilogueOp::Kind::Linear ||
           (by_channel && operands[op.operand].fixed != nullptr);
  }

  void fold(const EpilogueOp& op, std::span<const LibraryOperand> operands) {
    const bool is_linear = op.kind == EpilogueOp::Kind::Linear;
    const auto* vector =
        is_linear ? nullptr : static_cast<const float*>(operands[op.operand].fixed);
    const bool scales = op.kind != EpilogueOp::Kind::Shift;
    if (scales) weights_.factors.push_back({vector, op.a});
    const std::size_t step = !is_linear && is_one(operands[op.operand]) ? 0 : 1;
    for (std::size_t c = 0; c < bias_.size(); ++c) {
      const float factor = is_linear ? op.a : scales ? vector[c * step] : 1.0f;
      const float shift = is_linear ? op.b : scales ? 0.0f : vector[c * step];
      weights_.scale[c] *= factor;
      bias_[c] = bias_[c] * factor + shift;
    }
  }

  void take_sum() {
    if (tail_.empty() || tail_[0].kind != EpilogueOp::Kind::Add) return;
    added_ = tail_[0].operand;
    tail_.erase(tail_.begin());
  }

  /// Multiplies fixed weights among which are subnormal ones by a power of two and their sums by its inverse, exactly but
  /// for results above 2^103: a multiply-add with a subnormal operand takes 130 cycles, and weights that training let
  /// decay are full of them.
  void lift_subnormals(std::span<const LibraryOperand> operands) {
    constexpr float kLift = 1 << 24;
    if (weights_.data == nullptr || added_ || tail_.size() == kMaxEpilogue) return;
    const bool varies = problem_.has_bias && bias_.empty() && operands[2].fixed == nullptr;
    if (varies || !has_subnormals(weights_.data, elements_of(problem_.weights))) return;
    const auto channels = static_cast<std::size_t>(problem_.result[1]);
    if (problem_.has_bias && bias_.empty()) {
      const auto* given = static_cast<const float*>(operands[2].fixed);
      bias_.assign(given, given + channels);
    }
    if (weights_.scale.empty()) weights_.scale.assign(channels, 1.0f);
    weights_.factors.push_back({nullptr, kLift});
    for (float& scale : weights_.scale) scale *= kLift;
    for (float& bias : bias_) bias *= kLift;
    // A gate passes the factor on to what follows.
    const bool gated = !tail_.empty() && tail_[0].kind == EpilogueOp::Kind::Gate;
    if (gated) tail_[0].a /= kLift;
    tail_.insert(tail_.begin() + (gated ? 1 : 0), line(EpilogueOp::Kind::Scale, 1 / kLift));
  }

  bool sums() const { return added_ && algorithm_ == Algorithm::Direct; }

  void prepare(int threads) {
    parts_.clear();
    const bool resident = algorithm_ == Algorithm::Winograd || !tail_.empty();
    const Cut cut =
        has_products(problem_) ? cut_of(problem_, algorithm_, threads, resident) : Cut{};
    for (std::int64_t k = 0; cut.parts > 1 && k < cut.parts; ++k) {
      const std::optional<PartOf> part = part_of(problem_, cut, k);
      if (!part) {
        parts_.clear();
        break;
      }
      parts_.push_back(made(part->problem, part->x_offset, part->result_offset));
    }
    if (parts_.empty())
      parts_.push_back(made(problem_, 0, 0));
    else if (!resident)
      whole_.emplace(made(problem_, 0, 0));
    reserve();
  }

  Part made(const Problem& problem, std::int64_t x_offset, std::int64_t result_offset) const {
    const std::int64_t batch = problem.result[0];
    const std::int64_t positions = batch == 0 ? 0 : positions_of(problem) / batch;
    return {kernel_for(problem), batch, positions, x_offset, result_offset};
  }

  std::variant<Primitive, Tiles, Biases> kernel_for(const Problem& problem) const {
    if (!has_products(problem)) return Biases(problem, sums());
    if (algorithm_ == Algorithm::Winograd && has_winograd(problem)) return Tiles(problem, weights_);
    return Primitive(problem, algorithm_, sums(), weights_);
  }

  void reserve() {
    saved_offset_ = 0;
    saved_bytes_ = 0;
    const auto count = [&](const Part& part) {
      const auto bytes = [](const auto& kernel) { return kernel.scratch_bytes(); };
      saved_offset_ = std::max(saved_offset_, std::visit(bytes, part.kernel));
      const std::int64_t elements = part.batch * part.positions * problem_.result[1];
      saved_bytes_ = std::max(saved_bytes_, aligned(static_cast<std::size_t>(elements) * 4));
    };
    for (const Part& part : parts_) count(part);
    if (whole_) count(*whole_);
  }

  /// Operands that the tail adds: they are set aside where the result lies in their bytes.
  std::int64_t saves() const {
    return std::ranges::count(tail_, EpilogueOp::Kind::Add, &EpilogueOp::kind);
  }

  void run_part(const Part& part, void* const* buffers, void* scratch) const {
    const auto at = [&](std::uint32_t buffer) {
      return static_cast<float*>(buffers[buffer]) + part.result_offset;
    };
    float* x = static_cast<float*>(buffers[0]) + part.x_offset;
    float* out = at(static_cast<std::uint32_t>(result_buffer_));
    const std::int64_t channels = problem_.result[1];
    const auto bytes =
        static_cast<std::size_t>(part.batch * part.positions * channels) * sizeof(float);
    std::array<TailOp, kMaxEpilogue> ops;
    char* saved = static_cast<char*>(scratch) + saved_offset_;
    for (std::size_t k = 0; k < tail_.size(); ++k) {
      ops[k].op = tail_[k];
      if (tail_[k].operand == ir::kNone) continue;
      const bool moves = tail_[k].kind == EpilogueOp::Kind::Add;
      const auto* operand = static_cast<const float*>(buffers[tail_[k].operand]);
      if (!moves && is_one_[tail_[k].operand]) {
        ops[k].op = line(tail_[k].kind, *operand);
        continue;
      }
      ops[k].operand = moves ? at(tail_[k].operand) : operand;
      if (!moves || ops[k].operand != out || bytes == 0) continue;
      std::memcpy(saved, out, bytes);
      ops[k].operand = reinterpret_cast<const float*>(saved);
      saved += saved_bytes_;
    }
    const std::span<const TailOp> tail(ops.data(), tail_.size());
    const float* added = added_ ? at(*added_) : nullptr;
    if (sums() && added != out && bytes != 0) std::memcpy(out, added, bytes);
    void* bias = !bias_.empty() ? const_cast<float*>(bias_.data()) : buffers[2];
    if (!problem_.has_bias) bias = nullptr;
    if (const auto* tiles = std::get_if<Tiles>(&part.kernel)) {
      tiles->run(x, static_cast<const float*>(bias), added, tail, out, scratch);
      return;
    }
    const auto* primitive = std::get_if<Primitive>(&part.kernel);
    if (primitive != nullptr)
      primitive->run(x, buffers[1], bias, out, scratch);
    else
      std::get<Biases>(part.kernel).run(static_cast<const float*>(bias), out);
    if (algorithm_ == Algorithm::Direct)
      run_tail(tail, out, part.batch * part.positions, channels);
    else
      finish_blocked(part, primitive->blocked(scratch), added, tail, out);
  }

  void finish_blocked(const Part& part, const float* blocked, const float* added,
                      std::span<const TailOp> tail, float* out) const {
    const std::int64_t channels = problem_.result[1];
    const std::int64_t blocks = (channels + kChannelBlock - 1) / kChannelBlock;
    for (std::int64_t n = 0; n < part.batch; ++n) {
      const std::int64_t image = n * part.positions * channels;
      std::array<TailOp, kMaxEpilogue> ops;
      std::ranges::copy(tail, ops.begin());
      for (std::size_t k = 0; k < tail.size(); ++k)
        if (ops[k].op.kind == EpilogueOp::Kind::Add) ops[k].operand += image;
      unblock(blocked + n * blocks * kChannelBlock * part.positions,
              added == nullptr ? nullptr : added + image, {ops.data(), tail.size()}, out + image,
              part.positions, channels);
    }
  }

  Problem problem_;
  std::size_t result_buffer_;
  Algorithm algorithm_ = Algorithm::Direct;
  FixedWeights weights_;
  std::vector<float> bias_;             ///< with what was folded into it; empty: the operand's
  std::optional<std::uint32_t> added_;  ///< the operand that is summed into first
  std::vector<EpilogueOp> tail_;        ///< what is left of the epilogue
  std::vector<bool> is_one_;            ///< by buffer: has one element
  std::optional<Part> whole_;
  std::vector<Part> parts_;
  std::int64_t saved_offset_ = 0, saved_bytes_ = 0;
};

}  // namespace

std::size_t packed_parameters() { return PackedParameters::instance().live(); }

bool serves(std::string_view name, const ir::Node& node) {
  if (name != "conv" || node.output().dtype != DType::F32) return false;
  const auto rank = node.output().rank();
  return rank >= 3 && rank <= 5;
}

std::unique_ptr<BoundLibraryCall> bind(const LibraryCall& call,
                                       std::span<const LibraryOperand> operands, int threads) {
  if (call.name != "conv") return nullptr;
  try {
    return std::make_unique<Convolution>(call, operands, threads);
  } catch (const dnnl::error& error) {
    throw CompileError({.what = "oneDNN " + call.name,
                        .where = {},
                        .expected = "a primitive for these sizes",
                        .got = error.what()});
  }
}

}  // namespace heddle::jit::onednn
