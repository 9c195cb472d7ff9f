#include "jit/cpu/onednn/onednn.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <optional>
#include <set>
#include <variant>

#include "base/file_place.h"
#include "heddle/error.h"
#include "jit/cpu/onednn/conv_choice.h"
#include "jit/cpu/onednn/cut.h"
#include "jit/cpu/onednn/primitive.h"
#include "jit/cpu/onednn/problem.h"
#include "jit/cpu/onednn/tail.h"
#include "jit/cpu/onednn/windows.h"
#include "jit/cpu/onednn/winograd.h"

// oneDNN is built on OpenMP; its pool must never start. The setting belongs to the calling thread.
extern "C" void omp_set_num_threads(int count) __attribute__((weak));

namespace heddle::jit::onednn {

namespace {

/// Linkers take a weak symbol for null in a program that does not name its library.
decltype(&omp_set_num_threads) thread_setter() {
  if (omp_set_num_threads != nullptr) return omp_set_num_threads;
  return reinterpret_cast<decltype(&omp_set_num_threads)>(
      dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
}

void stay_on_this_thread() {
  thread_local const bool done = [] {
    static const auto set_threads = thread_setter();
    if (set_threads != nullptr) set_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

/// What may be among weights, as bits of a number.
constexpr std::uint8_t kSubnormals = 1;
constexpr std::uint8_t kHuge = 2;  ///< kHugeWeight or more, infinite or NaN
constexpr float kHugeWeight = 0x1p60f;

std::uint8_t kinds_of(const float* values, std::int64_t count) {
  using Bits = std::uint32_t __attribute__((vector_size(64), aligned(4)));
  constexpr std::uint32_t kLeastNormal = 0x00800000;
  constexpr auto kHugeBits = std::bit_cast<std::uint32_t>(kHugeWeight);
  constexpr std::int64_t kLanes = sizeof(Bits) / sizeof(float);
  Bits subnormal{};
  Bits huge{};
  Bits bits{};
  for (std::int64_t k = 0; k < count; k += kLanes) {
    bits = Bits{};
    std::memcpy(&bits, values + k,
                static_cast<std::size_t>(std::min(kLanes, count - k)) * sizeof(float));
    const Bits magnitude = (bits << 1) >> 1;  // zero less one wraps to the largest number
    subnormal |= magnitude - 1 < kLeastNormal - 1;
    huge |= magnitude >= kHugeBits;
  }
  std::uint8_t kinds = 0;
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    if (subnormal[lane] != 0) kinds |= kSubnormals;
    if (huge[lane] != 0) kinds |= kHuge;
  }
  return kinds;
}

/// The same of fixed weights. Where they lie in a file that can be told from others, a byte on disk says it: large ones are
/// not read again at each start.
std::uint8_t find_kinds(const FixedWeights& weights, std::int64_t count) {
  const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  const void* source = weights.origin != nullptr ? weights.origin : weights.data;
  if (weights.constants == nullptr || bytes < ConstantCache::kLeastBytes ||
      base::place_in_file(source, bytes).empty())
    return kinds_of(weights.data, count);
  std::string key = "kinds of floats\n" + source_key(source, bytes);
  if (const auto known = weights.constants->find(key, std::array{sizeof(std::uint8_t)});
      !known.empty())
    return *static_cast<const std::uint8_t*>(known[0].get());
  const auto found = std::make_shared<const std::uint8_t>(kinds_of(weights.data, count));
  weights.constants->store(std::move(key), {found}, {sizeof(std::uint8_t)});
  return *found;
}

std::uint8_t kinds_of(const FixedWeights& weights, std::int64_t count) {
  const auto find = [&] { return find_kinds(weights, count); };
  return weights.facts == nullptr ? find() : weights.facts->of(weights.data, find);
}

/// Winograd's algorithm by a kernel of ours, with all that follows it.
class Tiles {
 public:
  Tiles(const Problem& problem, Algorithm algorithm, const FixedWeights& weights)
      : problem_(problem),
        kernel_{.form = *form_of(problem, algorithm)},
        weights_(winograd_weights_of(problem, kernel_, weights)) {}

  std::int64_t scratch_bytes() const {
    return aligned(static_cast<std::size_t>(winograd_scratch(problem_, kernel_)));
  }

  void run(const float* x, const float* bias, const float* added, std::span<const TailOp> tail,
           float* out, void* scratch, std::optional<Panels> panels) const {
    run_winograd(problem_, x, weights_.get(), bias, added, tail, out, scratch, panels, kernel_);
  }

 private:
  Problem problem_;
  WinogradKernel kernel_;
  std::shared_ptr<const float> weights_;
};

/// The direct algorithm by a kernel of ours, with all that follows it.
class Windows {
 public:
  Windows(const Problem& problem, const FixedWeights& weights)
      : problem_(problem), weights_(window_weights_of(problem, weights)) {}

  std::int64_t scratch_bytes() const { return window_scratch(problem_); }

  void run(const float* x, const float* bias, const float* added, std::span<const TailOp> tail,
           float* out, void* scratch, std::optional<Panels> panels) const {
    run_windows(problem_, x, weights_.get(), bias, added, tail, out, scratch, panels);
  }

 private:
  Problem problem_;
  std::shared_ptr<const float> weights_;
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
/// bias, and weights are kept from being subnormal. A tensor added next is summed into by the kernel. The rest
/// runs on each part's result, or each block's of a kernel of ours, while it lies in the cache: oneDNN's own relu would turn NaN into 0.
class Convolution final : public BoundLibraryCall {
 public:
  Convolution(const LibraryCall& call, std::span<const LibraryOperand> operands, int threads,
              const LibraryWays& ways)
      : problem_(problem_of(call, operands)), result_buffer_(operands.size() - 1) {
    stay_on_this_thread();
    weights_.data = static_cast<const float*>(operands[1].fixed);
    weights_.origin = operands[1].origin;
    weights_.constants = ways.constants;
    weights_.facts = ways.facts;
    tail_ = call.epilogue;
    for (const LibraryOperand& operand : operands) is_one_.push_back(is_one(operand));
    fold(operands);
    take_sum();
    lift_subnormals(operands);
    join_lines(operands);
    takes_any_ = weights_.data != nullptr && has_products(problem_) && has_tame_weights();
    Problem whole = problem_;
    whole.x[0] *= ways.times;
    whole.result[0] *= ways.times;
    choose(call.winograd && takes_any_ ? choice_of(whole, ways) : std::nullopt);
    try {
      prepare(threads);
      if (is_winograd(algorithm_)) make_ready(true, true);
    } catch (const CompileError&) {
      if (!is_winograd(algorithm_)) throw;
      choose({});
      prepare(threads);
    }
  }

  void make_ready(bool whole, bool in_parts) const override {
    stay_on_this_thread();
    const auto make = [](const Part& part) {
      if (const auto* primitive = std::get_if<Primitive>(part.kernel.get())) primitive->make();
    };
    if (whole && whole_) make(*whole_);
    if (in_parts || !whole_) std::ranges::for_each(parts_, make);
  }

  std::int64_t extent() const override { return static_cast<std::int64_t>(parts_.size()); }

  std::optional<std::vector<Touched>> touched(std::int64_t begin, std::int64_t end) const override {
    if (begin >= end || by_channels_ || !problem_.channels_last) return {};
    constexpr std::int64_t kEach = sizeof(float);
    Interval read;
    Interval written;
    for (std::int64_t k = begin; k < end; ++k) {
      const Part& part = parts_[static_cast<std::size_t>(k)];
      const std::int64_t result = part.batch * part.positions * problem_.result[1];
      read.add({part.x_offset * kEach, (part.x_offset + part.x_elements) * kEach - 1});
      written.add({part.result_offset * kEach, (part.result_offset + result) * kEach - 1});
    }
    const Interval all{0, std::numeric_limits<std::int64_t>::max()};
    std::vector<Touched> touched(result_buffer_ + 1, Touched{.read = all, .written = {}});
    touched[0].read = read;
    touched[result_buffer_] = {written, written};
    if (added_) touched[*added_].read = written;
    for (const EpilogueOp& op : tail_)
      if (op.kind == EpilogueOp::Kind::Add) touched[op.operand].read = written;
    return touched;
  }

  std::int64_t scratch_bytes() const override { return saved_offset_ + saves() * saved_bytes_; }

  /// Of what is made of one problem: by the library a description, and code where it runs. Measured over many sizes.
  static constexpr std::int64_t kKernelBytes = std::int64_t{16} << 10;

  std::int64_t held_bytes() const override {
    std::set<const Kernel*> kernels;
    for (const Part& part : parts_) kernels.insert(part.kernel.get());
    if (whole_) kernels.insert(whole_->kernel.get());
    return static_cast<std::int64_t>(kernels.size()) * kKernelBytes +
           static_cast<std::int64_t>(parts_.size() * sizeof(Part));
  }

  const LibraryChoice* choice() const override { return choice_ ? &*choice_ : nullptr; }

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
  using Kernel = std::variant<Primitive, Tiles, Windows, Biases>;
  struct Part {
    std::shared_ptr<const Kernel> kernel;  ///< parts of the same sizes share one
    std::int64_t batch, positions;         ///< of the result
    std::int64_t x_offset, x_elements, result_offset;
    std::optional<Panels> panels{};  ///< nothing: all
  };

  void choose(std::optional<LibraryChoice> choice) {
    choice_ = std::move(choice);
    algorithm_ = choice_ ? Algorithm{static_cast<std::uint8_t>(choice_->way)} : Algorithm::Direct;
    // The library knows tiles of 4 x 4 alone.
    const auto form = form_of(problem_, algorithm_);
    if (!form || (*form != kTiles4 && !has_winograd(problem_))) algorithm_ = Algorithm::Direct;
    if (algorithm_ == Algorithm::Direct && takes_any_ && has_windows(problem_) &&
        suits_windows(problem_))
      algorithm_ = Algorithm::Windows;
  }

  /// Whether weights stay finite when they are scaled: kernels of ours multiply padding by them.
  bool has_tame_weights() const {
    return (kinds_of(weights_, elements_of(problem_.weights)) & kHuge) == 0 &&
           std::ranges::all_of(weights_.scale,
                               [](float scale) { return std::abs(scale) < kHugeWeight; });
  }

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

  /// Multiplies fixed weights among which are subnormal ones by a power of two and their sums by its inverse, exactly
  /// but for results above 2^103: a multiply-add with a subnormal operand takes 130 cycles, and weights that training
  /// let decay are full of them.
  void lift_subnormals(std::span<const LibraryOperand> operands) {
    constexpr float kLift = 1 << 24;
    if (weights_.data == nullptr || added_ || tail_.size() == kMaxEpilogue) return;
    const bool varies = problem_.has_bias && bias_.empty() && operands[2].fixed == nullptr;
    if (varies || (kinds_of(weights_, elements_of(problem_.weights)) & kSubnormals) == 0) return;
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
    whole_.reset();
    kernels_.clear();
    const bool resident =
        is_winograd(algorithm_) || (algorithm_ == Algorithm::Direct && !tail_.empty());
    const std::int64_t panels = panels_to_share();
    const Cut cut =
        has_products(problem_) ? cut_of(problem_, algorithm_, threads, resident, panels) : Cut{};
    by_channels_ = cut.columns > 1;
    for (std::int64_t k = 0; cut.parts() > 1 && k < cut.parts(); ++k) {
      const std::optional<PartOf> part = part_of(problem_, cut, k);
      if (!part) {
        parts_.clear();
        break;
      }
      parts_.push_back(made(part->problem, part->x_offset, part->result_offset));
      if (by_channels_) parts_.back().panels = cut.panels_of(k, panels);
    }
    if (parts_.empty())
      parts_.push_back(made(problem_, 0, 0));
    else if ((!resident && !cut.changes_sums) || by_channels_)
      whole_.emplace(made(problem_, 0, 0));
    kernels_.clear();
    reserve();
  }

  /// Panels of the channels that parts may be of.
  std::int64_t panels_to_share() const {
    // What is set aside is a part's whole memory, of which one of some channels shares each row with others.
    if (saves() != 0) return 1;
    if (is_winograd(algorithm_) && has_winograd(problem_))
      return winograd_panels(problem_, {.form = *form_of(problem_, algorithm_)});
    return algorithm_ == Algorithm::Windows ? window_panels(problem_) : 1;
  }

  Part made(const Problem& problem, std::int64_t x_offset, std::int64_t result_offset) {
    std::shared_ptr<const Kernel>& kernel =
        kernels_[{problem.x, problem.result, problem.pads_low, problem.pads_high}];
    if (kernel == nullptr) kernel = std::make_shared<const Kernel>(kernel_for(problem));
    const std::int64_t batch = problem.result[0];
    const std::int64_t positions = batch == 0 ? 0 : positions_of(problem) / batch;
    return {kernel, batch, positions, x_offset, elements_of(problem.x), result_offset};
  }

  Kernel kernel_for(const Problem& problem) const {
    if (!has_products(problem)) return Biases(problem, sums());
    if (is_winograd(algorithm_) && has_winograd(problem))
      return Tiles(problem, algorithm_, weights_);
    if (algorithm_ == Algorithm::Windows) return Windows(problem, weights_);
    return Primitive(problem, algorithm_, sums(), weights_);
  }

  void reserve() {
    saved_offset_ = 0;
    saved_bytes_ = 0;
    const auto count = [&](const Part& part) {
      const auto bytes = [](const auto& kernel) { return kernel.scratch_bytes(); };
      saved_offset_ = std::max(saved_offset_, std::visit(bytes, *part.kernel));
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
    const auto* shift = static_cast<const float*>(bias);
    if (const auto* tiles = std::get_if<Tiles>(part.kernel.get()))
      return tiles->run(x, shift, added, tail, out, scratch, part.panels);
    if (const auto* windows = std::get_if<Windows>(part.kernel.get()))
      return windows->run(x, shift, added, tail, out, scratch, part.panels);
    const auto* primitive = std::get_if<Primitive>(part.kernel.get());
    if (primitive != nullptr)
      primitive->run(x, buffers[1], bias, out, scratch);
    else
      std::get<Biases>(*part.kernel).run(shift, out);
    if (algorithm_ == Algorithm::Direct)
      run_tail(tail, out, part.batch * part.positions, channels, channels);
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
  std::optional<LibraryChoice> choice_;  ///< nothing: there is one algorithm
  Algorithm algorithm_ = Algorithm::Direct;
  bool takes_any_ = false;  ///< no algorithm is ruled out by what the weights are
  FixedWeights weights_;
  std::vector<float> bias_;             ///< with what was folded into it; empty: the operand's
  std::optional<std::uint32_t> added_;  ///< the operand that is summed into first
  std::vector<EpilogueOp> tail_;        ///< what is left of the epilogue
  std::vector<bool> is_one_;            ///< by buffer: has one element
  std::optional<Part> whole_;
  bool by_channels_ = false;  ///< parts give some channels of their positions
  std::vector<Part> parts_;
  std::map<std::array<Ints, 4>, std::shared_ptr<const Kernel>>
      kernels_;  ///< by sizes and padding, of parts being made
  std::int64_t saved_offset_ = 0, saved_bytes_ = 0;
};

}  // namespace

bool serves(std::string_view name, const ir::Node& node) {
  if (name != "conv" || node.output().dtype != DType::F32) return false;
  const auto rank = node.output().rank();
  return rank >= 3 && rank <= 5;
}

std::unique_ptr<BoundLibraryCall> bind(const LibraryCall& call,
                                       std::span<const LibraryOperand> operands, int threads,
                                       const LibraryWays& ways) {
  if (call.name != "conv") return nullptr;
  return std::make_unique<Convolution>(call, operands, threads, ways);
}

}  // namespace heddle::jit::onednn
