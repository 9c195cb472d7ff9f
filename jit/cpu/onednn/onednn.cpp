#include "jit/cpu/onednn/onednn.h"

#include <algorithm>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>

#include "heddle/error.h"

// oneDNN is built on OpenMP; its pool must never start. The setting belongs to the calling thread.
extern "C" void omp_set_num_threads(int count) __attribute__((weak));

namespace heddle::jit::onednn {

namespace {

using dnnl::memory;
using Ints = std::vector<std::int64_t>;

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

std::int64_t aligned(std::size_t bytes) {
  return static_cast<std::int64_t>((bytes + 63) / 64 * 64);
}

/// Whether the call runs along its first spatial dimension only, [L, 1]. oneDNN runs along the last one, so it
/// is shown such a call as one over [1, L]: the same bytes.
bool is_column(std::span<const LibraryOperand> operands) {
  const auto ends_in_one = [](const LibraryOperand& operand) {
    return operand.sizes.size() == 4 && operand.sizes[3] == 1;
  };
  return ends_in_one(operands[0]) && ends_in_one(operands[1]) && ends_in_one(operands.back());
}

Ints turned(Ints sizes, bool turn) {
  if (turn) std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
  return sizes;
}

/// Parameters in the layouts that calls want, packed once for each layout: plans for other sizes share them.
/// Kept as long as a call uses them; so long its parameter lives, and no other has its address.
class PackedParameters {
 public:
  static PackedParameters& instance() {
    static auto* const cache = new PackedParameters;
    return *cache;
  }

  /// `fixed` is laid out as `reorder` expects; the result as `wanted`.
  std::shared_ptr<const memory> find_or_pack(const void* fixed, const memory::desc& given,
                                             const memory::desc& wanted,
                                             const dnnl::reorder& reorder) {
    const std::lock_guard lock(mutex_);
    std::erase_if(entries_, [](const auto& entry) { return all_expired(entry.second); });
    std::vector<Entry>& entries = entries_[fixed];
    for (const Entry& entry : entries) {
      std::shared_ptr<const memory> held = entry.packed.lock();
      if (held && held->get_desc() == wanted) return held;
    }
    memory source(given, cpu_engine(), const_cast<void*>(fixed));
    auto packed = std::make_shared<memory>(wanted, cpu_engine());
    dnnl::stream stream(cpu_engine());
    reorder.execute(stream, source, *packed);
    stream.wait();
    entries.push_back({packed});
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
    std::weak_ptr<const memory> packed;
  };
  static bool all_expired(const std::vector<Entry>& entries) {
    return std::ranges::all_of(entries, [](const Entry& entry) { return entry.packed.expired(); });
  }

  std::mutex mutex_;
  std::unordered_map<const void*, std::vector<Entry>> entries_;
};

/// Convolution in the layout oneDNN likes best: operands are reordered into scratch where that differs from
/// row-major, the weights once.
class Convolution final : public BoundLibraryCall {
 public:
  Convolution(const LibraryCall& call, std::span<const LibraryOperand> operands)
      : has_bias_(operands.size() == 4) {
    stay_on_this_thread();
    const bool turn = is_column(operands);
    const Ints x = turned(operands[0].sizes, turn);
    const Ints out = turned(operands.back().sizes, turn);
    const auto ints = [&](const LibraryCall& from, const char* name) {
      return turned(std::get<Ints>(from.attrs.at(name)), turn);
    };
    const Ints weights =
        grouped(turned(operands[1].sizes, turn), std::get<std::int64_t>(call.attrs.at("groups")));
    source_ = plain(x);
    result_ = plain(out);
    weights_ = plain(weights);
    Ints dilations = ints(call, "dilations");
    for (std::int64_t& dilation : dilations) --dilation;
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    if (has_bias_) bias_ = plain(operands[2].sizes);
    const dnnl::convolution_forward::desc desc =
        has_bias_ ? dnnl::convolution_forward::desc(
                        dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
                        any(x), any(weights), bias_, any(out), ints(call, "strides"), dilations,
                        ints(call, "pads_low"), ints(call, "pads_high"))
                  : dnnl::convolution_forward::desc(
                        dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
                        any(x), any(weights), any(out), ints(call, "strides"), dilations,
                        ints(call, "pads_low"), ints(call, "pads_high"));
    primitive_desc_ = dnnl::convolution_forward::primitive_desc(desc, attr, cpu_engine());
    primitive_ = dnnl::convolution_forward(primitive_desc_);
    prepare_reorders(operands[1].fixed);
    reserve();
  }

  std::int64_t scratch_bytes() const override { return total_; }

  void run(void* const* buffers, std::int64_t, std::int64_t, void* scratch) const override {
    stay_on_this_thread();
    dnnl::stream stream(cpu_engine());
    char* at = static_cast<char*>(scratch);
    void* out = buffers[has_bias_ ? 3 : 2];
    memory source(source_, cpu_engine(), buffers[0]);
    if (reorder_source_) {
      memory packed(primitive_desc_.src_desc(), cpu_engine(), at + source_offset_);
      reorder_source_.execute(stream, source, packed);
      source = packed;
    }
    memory weights;
    if (weights_fixed_) {
      weights = *packed_weights_;
    } else {
      weights = memory(weights_, cpu_engine(), buffers[1]);
      if (reorder_weights_) {
        memory packed(primitive_desc_.weights_desc(), cpu_engine(), at + weights_offset_);
        reorder_weights_.execute(stream, weights, packed);
        weights = packed;
      }
    }
    memory target(primitive_desc_.dst_desc(), cpu_engine(),
                  reorder_result_ ? at + result_offset_ : out);
    memory pad(primitive_desc_.scratchpad_desc(), cpu_engine(), at + pad_offset_);
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, source},
                                              {DNNL_ARG_WEIGHTS, weights},
                                              {DNNL_ARG_DST, target},
                                              {DNNL_ARG_SCRATCHPAD, pad}};
    if (has_bias_) arguments.emplace(DNNL_ARG_BIAS, memory(bias_, cpu_engine(), buffers[2]));
    primitive_.execute(stream, arguments);
    if (reorder_result_) {
      memory final_result(result_, cpu_engine(), out);
      reorder_result_.execute(stream, target, final_result);
    }
    stream.wait();
  }

 private:
  static Ints grouped(const Ints& sizes, std::int64_t groups) {
    if (groups == 1) return sizes;
    Ints result{groups, sizes[0] / groups};
    result.insert(result.end(), sizes.begin() + 1, sizes.end());
    return result;
  }

  void prepare_reorders(const void* fixed_weights) {
    if (primitive_desc_.src_desc() != source_)
      reorder_source_ = dnnl::reorder(dnnl::reorder::primitive_desc(
          cpu_engine(), source_, cpu_engine(), primitive_desc_.src_desc()));
    if (primitive_desc_.dst_desc() != result_)
      reorder_result_ = dnnl::reorder(dnnl::reorder::primitive_desc(
          cpu_engine(), primitive_desc_.dst_desc(), cpu_engine(), result_));
    if (primitive_desc_.weights_desc() != weights_)
      reorder_weights_ = dnnl::reorder(dnnl::reorder::primitive_desc(
          cpu_engine(), weights_, cpu_engine(), primitive_desc_.weights_desc()));
    if (fixed_weights == nullptr) return;
    weights_fixed_ = true;
    packed_weights_ =
        reorder_weights_
            ? PackedParameters::instance().find_or_pack(
                  fixed_weights, weights_, primitive_desc_.weights_desc(), reorder_weights_)
            : std::make_shared<memory>(weights_, cpu_engine(), const_cast<void*>(fixed_weights));
  }

  void reserve() {
    const auto take = [&](std::size_t bytes) {
      const std::int64_t at = total_;
      total_ += aligned(bytes);
      return at;
    };
    if (reorder_source_) source_offset_ = take(primitive_desc_.src_desc().get_size());
    if (reorder_result_) result_offset_ = take(primitive_desc_.dst_desc().get_size());
    if (reorder_weights_ && !weights_fixed_)
      weights_offset_ = take(primitive_desc_.weights_desc().get_size());
    pad_offset_ = take(primitive_desc_.scratchpad_desc().get_size());
  }

  bool has_bias_;
  bool weights_fixed_ = false;
  memory::desc source_, weights_, bias_, result_;
  dnnl::convolution_forward::primitive_desc primitive_desc_;
  dnnl::convolution_forward primitive_;
  dnnl::reorder reorder_source_, reorder_weights_, reorder_result_;
  std::shared_ptr<const memory> packed_weights_;
  std::int64_t source_offset_ = 0, weights_offset_ = 0, result_offset_ = 0, pad_offset_ = 0;
  std::int64_t total_ = 0;
};

}  // namespace

std::size_t packed_parameters() { return PackedParameters::instance().live(); }

bool serves(std::string_view name, const ir::Node& node) {
  if (name != "conv" || node.output().dtype != DType::F32) return false;
  const auto rank = node.output().rank();
  return rank >= 3 && rank <= 5;
}

std::unique_ptr<BoundLibraryCall> bind(const LibraryCall& call,
                                       std::span<const LibraryOperand> operands) {
  if (call.name != "conv") return nullptr;
  try {
    return std::make_unique<Convolution>(call, operands);
  } catch (const dnnl::error& error) {
    throw CompileError({.what = "oneDNN " + call.name,
                        .where = {},
                        .expected = "a primitive for these sizes",
                        .got = error.what()});
  }
}

}  // namespace heddle::jit::onednn
