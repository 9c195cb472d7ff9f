#include "jit/cpu/onednn/onednn.h"

#include <algorithm>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
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

std::int64_t aligned(std::size_t bytes) {
  return static_cast<std::int64_t>((bytes + 63) / 64 * 64);
}

/// A convolution as oneDNN counts: sizes [N, C, spatial...], one entry a spatial dimension, dilations from 0.
struct Problem {
  Ints x, weights, result;
  bool has_bias = false;
  Ints bias;
  Ints strides, dilations, pads_low, pads_high;
  bool channels_last = false;
};

Ints grouped(const Ints& sizes, std::int64_t groups) {
  if (groups == 1) return sizes;
  Ints result{groups, sizes[0] / groups};
  result.insert(result.end(), sizes.begin() + 1, sizes.end());
  return result;
}

/// Runs along the first of two spatial dimensions only: [L, 1].
bool is_column(const Problem& problem) {
  const auto ends_in_one = [](const Ints& sizes) { return sizes.size() == 4 && sizes[3] == 1; };
  return ends_in_one(problem.x) && ends_in_one(problem.weights) && ends_in_one(problem.result);
}

/// oneDNN runs along the last dimension, so it is shown a column as a row [1, L]: the same bytes.
void turn(Problem& problem) {
  for (Ints* list : {&problem.x, &problem.weights, &problem.result, &problem.strides,
                     &problem.dilations, &problem.pads_low, &problem.pads_high})
    std::swap(list->end()[-1], list->end()[-2]);
}

Problem problem_of(const LibraryCall& call, std::span<const LibraryOperand> operands) {
  const auto ints = [&](const char* name) { return std::get<Ints>(call.attrs.at(name)); };
  Problem problem{.x = operands[0].sizes,
                  .weights = operands[1].sizes,
                  .result = operands.back().sizes,
                  .has_bias = operands.size() == 4,
                  .bias = operands.size() == 4 ? operands[2].sizes : Ints(),
                  .strides = ints("strides"),
                  .dilations = ints("dilations"),
                  .pads_low = ints("pads_low"),
                  .pads_high = ints("pads_high")};
  for (std::int64_t& dilation : problem.dilations) --dilation;
  const auto last = call.attrs.find("channels_last");
  problem.channels_last = last != call.attrs.end() && std::get<bool>(last->second);
  if (problem.channels_last) {
    for (Ints* sizes : {&problem.x, &problem.result})
      std::rotate(sizes->begin() + 1, sizes->end() - 1, sizes->end());
  }
  if (is_column(problem)) turn(problem);
  problem.weights = grouped(problem.weights, std::get<std::int64_t>(call.attrs.at("groups")));
  return problem;
}

/// Parts of a convolution: each gives some slices of the result along one dimension, from the slices of x that
/// they read, as a convolution of its own.
struct Cut {
  std::size_t axis = 0;
  std::int64_t parts = 1;
  std::int64_t begin(std::int64_t part, std::int64_t size) const { return size * part / parts; }
};

/// Where slices are whole runs of memory: along the outermost dimension that is not 1. Channels-last problems only.
Cut cut_of(const Problem& problem, int threads) {
  std::size_t axis = 0;
  while (axis + 1 < problem.result.size() && problem.result[axis] == 1 && problem.x[axis] == 1)
    axis = axis == 0 ? 2 : axis + 1;
  const bool divides = problem.channels_last && axis < problem.result.size();
  // A part too thin has more reading of weights than arithmetic.
  constexpr std::int64_t kLeastSlices = 3;
  const std::int64_t most = divides ? problem.result[axis] / (axis == 0 ? 1 : kLeastSlices) : 1;
  return {axis, std::clamp<std::int64_t>(threads, 1, std::max<std::int64_t>(1, most))};
}

struct PartOf {
  Problem problem;
  std::int64_t x_offset = 0;  ///< elements
  std::int64_t result_offset = 0;
};

std::int64_t slice_elements(const Ints& sizes, std::size_t axis) {
  std::int64_t count = sizes[1];
  for (std::size_t k = axis == 0 ? 2 : axis + 1; k < sizes.size(); ++k) count *= sizes[k];
  return count;
}

/// Part `part`; nothing where it would read padding only.
std::optional<PartOf> part_of(const Problem& whole, const Cut& cut, std::int64_t part) {
  PartOf made{whole};
  const std::size_t axis = cut.axis;
  const std::int64_t begin = cut.begin(part, whole.result[axis]);
  const std::int64_t end = cut.begin(part + 1, whole.result[axis]);
  std::int64_t first = begin;
  std::int64_t last = end;
  if (axis >= 2) {
    const std::size_t d = axis - 2;
    const std::int64_t kernel = whole.weights[whole.weights.size() - whole.strides.size() + d];
    first = begin * whole.strides[d] - whole.pads_low[d];
    last = (end - 1) * whole.strides[d] - whole.pads_low[d] +
           (kernel - 1) * (whole.dilations[d] + 1) + 1;
    made.problem.pads_low[d] = std::max<std::int64_t>(0, -first);
    made.problem.pads_high[d] = std::max<std::int64_t>(0, last - whole.x[axis]);
    first = std::max<std::int64_t>(0, first);
    last = std::min(last, whole.x[axis]);
    if (first >= last) return {};
  }
  made.problem.x[axis] = last - first;
  made.problem.result[axis] = end - begin;
  made.x_offset = first * slice_elements(whole.x, axis);
  made.result_offset = begin * slice_elements(whole.result, axis);
  return made;
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

/// One primitive: a convolution in the layout that oneDNN likes best, or with channels last. Operands are reordered
/// into scratch where that differs from row-major, the weights once.
class Primitive {
 public:
  Primitive(const Problem& problem, const void* fixed_weights) : has_bias_(problem.has_bias) {
    const bool last = problem.channels_last;
    source_ = last ? channels_last(problem.x) : plain(problem.x);
    result_ = last ? channels_last(problem.result) : plain(problem.result);
    weights_ = plain(problem.weights);
    if (has_bias_) bias_ = plain(problem.bias);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const memory::desc x = last ? source_ : any(problem.x);
    const memory::desc weights = any(problem.weights);
    const memory::desc out = last ? result_ : any(problem.result);
    const auto kind = dnnl::prop_kind::forward_inference;
    const auto algorithm = dnnl::algorithm::convolution_direct;
    const dnnl::convolution_forward::desc desc =
        has_bias_ ? dnnl::convolution_forward::desc(kind, algorithm, x, weights, bias_, out,
                                                    problem.strides, problem.dilations,
                                                    problem.pads_low, problem.pads_high)
                  : dnnl::convolution_forward::desc(kind, algorithm, x, weights, out,
                                                    problem.strides, problem.dilations,
                                                    problem.pads_low, problem.pads_high);
    primitive_desc_ = dnnl::convolution_forward::primitive_desc(desc, attr, cpu_engine());
    primitive_ = dnnl::convolution_forward(primitive_desc_);
    prepare_reorders(fixed_weights);
    reserve();
  }

  std::int64_t scratch_bytes() const { return total_; }

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
    if (weights_fixed_) {
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
                  reorder_result_ ? at + result_offset_ : out);
    memory pad(primitive_desc_.scratchpad_desc(), cpu_engine(), at + pad_offset_);
    std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, source},
                                              {DNNL_ARG_WEIGHTS, weights},
                                              {DNNL_ARG_DST, target},
                                              {DNNL_ARG_SCRATCHPAD, pad}};
    if (has_bias_) arguments.emplace(DNNL_ARG_BIAS, memory(bias_, cpu_engine(), bias));
    primitive_.execute(stream, arguments);
    if (reorder_result_) {
      memory final_result(result_, cpu_engine(), out);
      reorder_result_.execute(stream, target, final_result);
    }
    stream.wait();
  }

 private:
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

/// A convolution that runs whole, or in parts that several threads may take.
class Convolution final : public BoundLibraryCall {
 public:
  Convolution(const LibraryCall& call, std::span<const LibraryOperand> operands, int threads)
      : problem_(problem_of(call, operands)), whole_(prepared(operands[1].fixed)) {
    const Cut cut = cut_of(problem_, threads);
    for (std::int64_t k = 0; cut.parts > 1 && k < cut.parts; ++k) {
      const std::optional<PartOf> part = part_of(problem_, cut, k);
      if (!part) {
        parts_.clear();
        break;
      }
      parts_.push_back(
          {Primitive(part->problem, operands[1].fixed), part->x_offset, part->result_offset});
    }
  }

  std::int64_t extent() const override {
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(parts_.size()));
  }

  std::int64_t scratch_bytes() const override {
    std::int64_t bytes = whole_.scratch_bytes();
    for (const Part& part : parts_) bytes = std::max(bytes, part.primitive.scratch_bytes());
    return bytes;
  }

  void run(void* const* buffers, std::int64_t begin, std::int64_t end,
           void* scratch) const override {
    stay_on_this_thread();
    auto* x = static_cast<float*>(buffers[0]);
    void* bias = problem_.has_bias ? buffers[2] : nullptr;
    auto* out = static_cast<float*>(buffers[problem_.has_bias ? 3 : 2]);
    if (begin == 0 && end == extent()) {
      whole_.run(x, buffers[1], bias, out, scratch);
      return;
    }
    for (std::int64_t k = begin; k < end; ++k) {
      const Part& part = parts_[static_cast<std::size_t>(k)];
      part.primitive.run(x + part.x_offset, buffers[1], bias, out + part.result_offset, scratch);
    }
  }

 private:
  struct Part {
    Primitive primitive;
    std::int64_t x_offset, result_offset;
  };

  Primitive prepared(const void* fixed_weights) const {
    stay_on_this_thread();
    return {problem_, fixed_weights};
  }

  Problem problem_;
  Primitive whole_;
  std::vector<Part> parts_;
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
