#include "jit/cpu/onednn/primitive.h"

#include <algorithm>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/file_place.h"
#include "base/lasting.h"
#include "heddle/error.h"
#include "jit/cpu/onednn/onednn.h"
#include "jit/cpu/onednn/windows.h"
#include "jit/cpu/onednn/winograd.h"

namespace heddle::jit::onednn {

namespace {

/// Of what runs Winograd's and the direct algorithm: measurements of other versions do not hold.
constexpr const char* kKernelsVersion = "3";

using dnnl::memory;

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
    return find_or_make("reorder", weights, given, wanted, [&](float* from, memory& packed) {
      memory source(given, cpu_engine(), from);
      dnnl::stream stream(cpu_engine());
      dnnl::reorder(dnnl::reorder::primitive_desc(cpu_engine(), given, cpu_engine(), wanted))
          .execute(stream, source, packed);
      stream.wait();
    });
  }

  /// What `make(weights, packed)` puts into memory of the layout `wanted`.
  /// @param how  tells it from others that make the same layout
  template <typename Make>
  std::shared_ptr<const memory> find_or_make(const std::string& how, const FixedWeights& weights,
                                             const memory::desc& given, const memory::desc& wanted,
                                             Make make) {
    if (std::shared_ptr<const memory> held = find(how, weights, wanted)) return held;
    // Others may make the same meanwhile: the first is kept.
    const std::vector<std::size_t> bytes{wanted.get_size()};
    const bool is_kept = weights.constants != nullptr && bytes[0] >= ConstantCache::kLeastBytes;
    std::string key;
    if (is_kept) {
      key = key_of(how, weights, given, wanted);
      const std::vector<ConstantCache::Piece> found = weights.constants->find(key, bytes);
      give_back_source(weights, given);  // the key may have come of its bytes
      if (!found.empty()) return add(how, weights, memory_at(found[0], wanted));
    }
    const std::unique_ptr<float[]> scaled = scaled_copy(weights, given);
    const std::shared_ptr<memory> made = memory_at(base::lasting_memory(wanted.get_size()), wanted);
    make(scaled == nullptr ? const_cast<float*>(weights.data) : scaled.get(), *made);
    give_back_source(weights, given);
    std::shared_ptr<const memory> packed = add(how, weights, made);
    if (is_kept && packed == made)
      weights.constants->store(std::move(key), {{packed, packed->get_data_handle()}}, bytes);
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
    std::string how;
    std::vector<FixedWeights::Factor> factors;
    std::weak_ptr<const memory> packed;
  };

  std::shared_ptr<const memory> find(const std::string& how, const FixedWeights& weights,
                                     const memory::desc& wanted) {
    const std::lock_guard lock(mutex_);
    return held(how, weights, wanted);
  }
  /// `packed`, or the same where it was added before.
  std::shared_ptr<const memory> add(const std::string& how, const FixedWeights& weights,
                                    std::shared_ptr<const memory> packed) {
    const std::lock_guard lock(mutex_);
    if (std::shared_ptr<const memory> before = held(how, weights, packed->get_desc()))
      return before;
    std::erase_if(entries_, [](const auto& entry) { return all_expired(entry.second); });
    entries_[weights.data].push_back({how, weights.factors, packed});
    return packed;
  }
  /// Under `mutex_`; null: there is none.
  std::shared_ptr<const memory> held(const std::string& how, const FixedWeights& weights,
                                     const memory::desc& wanted) const {
    const auto known = entries_.find(weights.data);
    if (known == entries_.end()) return nullptr;
    for (const Entry& entry : known->second) {
      std::shared_ptr<const memory> packed = entry.packed.lock();
      if (packed && entry.how == how && entry.factors == weights.factors &&
          packed->get_desc() == wanted)
        return packed;
    }
    return nullptr;
  }

  static std::shared_ptr<memory> memory_at(std::shared_ptr<const void> bytes,
                                           const memory::desc& wanted) {
    struct Held {
      std::shared_ptr<const void> bytes;
      memory view;
    };
    void* const data = const_cast<void*>(bytes.get());
    const auto held =
        std::make_shared<Held>(Held{std::move(bytes), memory(wanted, cpu_engine(), data)});
    return {held, &held->view};
  }
  /// All that packed weights depend on.
  static std::string key_of(const std::string& how, const FixedWeights& weights,
                            const memory::desc& given, const memory::desc& wanted) {
    const auto bytes_of = [](const void* data, std::size_t bytes) {
      return std::string(static_cast<const char*>(data), bytes);
    };
    const void* source = weights.origin != nullptr ? weights.origin : weights.data;
    return "library weights\n" + version() + "\n" + how + "\n" +
           source_key(source, given.get_size()) + "\n" + bytes_of(&given.data, sizeof given.data) +
           bytes_of(&wanted.data, sizeof wanted.data) +
           bytes_of(weights.scale.data(), weights.scale.size() * sizeof(float));
  }
  /// Weights in a file leave memory: their packed form takes their place.
  static void give_back_source(const FixedWeights& weights, const memory::desc& given) {
    const void* source = weights.origin != nullptr ? weights.origin : weights.data;
    base::give_back_pages(source, given.get_size());
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

CompileError refused(const dnnl::error& error) {
  return CompileError({.what = "oneDNN conv",
                       .where = {},
                       .expected = "a primitive for these sizes",
                       .got = error.what()});
}

}  // namespace

class Primitive::Impl {
 public:
  Impl(const Problem& problem, Algorithm algorithm, bool sums, const FixedWeights& weights)
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
    prepare_reorders(weights);
    reserve();
  }

  std::int64_t scratch_bytes() const { return total_; }

  void make() const {
    std::call_once(is_made_, [this] {
      try {
        primitive_ = dnnl::convolution_forward(primitive_desc_);
      } catch (const dnnl::error& error) {
        throw refused(error);
      }
    });
  }

  const float* blocked(void* scratch) const {
    return reinterpret_cast<const float*>(static_cast<char*>(scratch) + result_offset_);
  }

  void run(void* x, void* given_weights, void* bias, void* out, void* scratch) const {
    make();
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
  bool is_winograd() const { return onednn::is_winograd(algorithm_); }
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
  mutable std::once_flag is_made_;
  mutable dnnl::convolution_forward primitive_;  ///< once it is made
  dnnl::reorder reorder_source_, reorder_weights_, reorder_result_;
  std::shared_ptr<const memory> packed_weights_;
  std::int64_t source_offset_ = 0, weights_offset_ = 0, result_offset_ = 0, pad_offset_ = 0;
  std::int64_t total_ = 0;
};

Primitive::Primitive(const Problem& problem, Algorithm algorithm, bool sums,
                     const FixedWeights& weights) {
  try {
    impl_ = std::make_unique<const Impl>(problem, algorithm, sums, weights);
  } catch (const dnnl::error& error) {
    throw refused(error);
  }
}
Primitive::Primitive(Primitive&&) noexcept = default;
Primitive::~Primitive() = default;

std::int64_t Primitive::scratch_bytes() const { return impl_->scratch_bytes(); }

void Primitive::make() const { impl_->make(); }

const float* Primitive::blocked(void* scratch) const { return impl_->blocked(scratch); }

void Primitive::run(void* x, void* given_weights, void* bias, void* out, void* scratch) const {
  impl_->run(x, given_weights, bias, out, scratch);
}

namespace {

/// What transform_weights() computes, and from what: to be changed with it.
std::string name_of_weights(const WinogradKernel& kernel) {
  const auto sizes = [](std::int64_t down, std::int64_t across) {
    return std::to_string(down) + "x" + std::to_string(across);
  };
  const TileForm& form = kernel.form;
  return "F(" + sizes(form.down, form.across) + ", " + sizes(form.taps_down, form.taps_across) +
         ") version 3, instruction set " + std::to_string(static_cast<int>(kernel.isa));
}

/// What pack_window_weights() makes, which the sizes of its result do not tell: to be changed with it.
std::string name_of_panels(const Problem& problem, KernelIsa isa) {
  const bool has_groups = problem.weights.size() > problem.result.size();
  return "panels of windows version 2, groups " +
         std::to_string(has_groups ? problem.weights[0] : 1) + ", instruction set " +
         std::to_string(static_cast<int>(isa));
}

}  // namespace

std::shared_ptr<const float> winograd_weights_of(const Problem& problem,
                                                 const WinogradKernel& kernel,
                                                 const FixedWeights& weights) {
  const std::shared_ptr<const memory> held = PackedParameters::instance().find_or_make(
      name_of_weights(kernel), weights, plain(problem.weights),
      plain(winograd_weights(problem, kernel)), [&](const float* from, memory& packed) {
        transform_weights(problem, from, static_cast<float*>(packed.get_data_handle()), kernel);
      });
  return {held, static_cast<const float*>(held->get_data_handle())};
}

std::shared_ptr<const float> window_weights_of(const Problem& problem,
                                               const FixedWeights& weights) {
  const KernelIsa isa = kernel_isas().front();
  const std::shared_ptr<const memory> held = PackedParameters::instance().find_or_make(
      name_of_panels(problem, isa), weights, plain(problem.weights),
      plain(window_weights(problem, isa)), [&](const float* from, memory& packed) {
        pack_window_weights(problem, from, static_cast<float*>(packed.get_data_handle()), isa);
      });
  return {held, static_cast<const float*>(held->get_data_handle())};
}

std::string version() {
  const dnnl::version_t* version = dnnl::version();
  return "oneDNN " + std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch) + " isa " +
         std::to_string(static_cast<int>(dnnl::get_effective_cpu_isa())) + " and kernels of ours " +
         kKernelsVersion;
}

std::size_t packed_parameters() { return PackedParameters::instance().live(); }

}  // namespace heddle::jit::onednn
