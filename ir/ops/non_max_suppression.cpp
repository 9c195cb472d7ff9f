// heddle::non_max_suppression: the boxes with the highest scores, but those that overlap a better one.
//
//   boxes             f32[B, N, 4]: y, x of two opposite corners in any order, or of the centre then height and width
//                     (x, y, width, height with center_point_box)
//   scores            f32[B, C, N]
//   max_output        i64[], boxes kept of one class of one batch at most; absent: no box
//   iou_threshold     f32[], 0 to 1: boxes whose intersection over union with a kept one is larger go; absent: 0
//   score_threshold   f32[]: boxes with a score above it are looked at; absent: all
//   center_point_box  whether boxes are given by their centre
//   most              kept of one class of one batch at most, as the result has room for: min(N, max_output)
//   results           i64[B * C * most, 3]: batch, class and box of each kept box, batch by batch, class by class,
//                     by falling score, equal ones in the order of boxes; i64[]: how many rows of it are filled. The
//                     others are not written.
//
// A NaN score keeps no box. A box without area overlaps none.
//
// Constraints. The shape function checks them in this order; tests are named NonMaxSuppression.C1 ...
//   C1  boxes are f32[B, N, 4]
//   C2  scores are f32[B, C, N]
//   C3  0 <= iou_threshold <= 1: when the call runs
//
// Memory: the results are fresh. Only on the CPU: boxes depend on all that were kept before.
// Source: ONNX NonMaxSuppression-11.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <compare>
#include <cstdint>
#include <fmt/format.h>
#include <numeric>

#include "heddle/error.h"
#include "ir/known_sizes.h"
#include "ir/ops/host_ops.h"

namespace heddle::ir::ops {
namespace {

std::vector<TensorMeta> shape_non_max_suppression(const CustomShapes& shapes) {
  const InferContext& context = shapes.context;
  const TensorMeta& boxes = shapes.tensors[0];
  const TensorMeta& scores = shapes.tensors[1];
  if (boxes.dtype != DType::F32 || boxes.rank() != 3)
    context.fail_dtype("C1 boxes", "f32[B, N, 4]", seen(context.env, boxes).to_string());
  context.require_equal(4, boxes.sizes[2], "C1 boxes");
  if (scores.dtype != DType::F32 || scores.rank() != 3)
    context.fail_dtype("C2 scores", "f32[B, C, N]", seen(context.env, scores).to_string());
  context.require_equal(boxes.sizes[0], scores.sizes[0], "C2 batches of scores");
  context.require_equal(boxes.sizes[1], scores.sizes[2], "C2 boxes of scores");
  const SymExpr& most = std::get<SymExpr>(context.attrs.find("most")->second);
  return {TensorMeta::of(DType::I64, {scores.sizes[0] * scores.sizes[1] * most, 3}),
          TensorMeta::of(DType::I64, {})};
}

struct Box {
  float low[2], high[2];
  float area() const { return (high[0] - low[0]) * (high[1] - low[1]); }
};

/// Corners of box `n`; of one given by its centre the first number is of the second dimension, which changes no area.
Box box_at(const KernelTensor& boxes, std::int64_t batch, std::int64_t n, bool centred) {
  const auto number = [&](std::int64_t k) {
    return boxes.as<const float>()[batch * boxes.strides()[0] + n * boxes.strides()[1] +
                                   k * boxes.strides()[2]];
  };
  Box box{};
  for (std::int64_t d = 0; d < 2; ++d) {
    const float a = number(d);
    const float b = number(d + 2);
    box.low[d] = centred ? a - b / 2 : std::min(a, b);
    box.high[d] = centred ? a + b / 2 : std::max(a, b);
  }
  return box;
}

bool overlap(const Box& a, const Box& b, float threshold) {
  float common = 1;
  for (int d = 0; d < 2; ++d) {
    const float low = std::max(a.low[d], b.low[d]);
    const float high = std::min(a.high[d], b.high[d]);
    if (high <= low) return false;
    common *= high - low;
  }
  if (a.area() <= 0 || b.area() <= 0) return false;
  const float joined = a.area() + b.area() - common;
  return joined > 0 && common / joined > threshold;
}

/// What the thresholds say.
struct Limits {
  std::int64_t most = 0;
  float overlap = 0;
  bool has_score = false;
  float score = 0;

  explicit Limits(const KernelCall& call) {
    const std::int64_t room = call.integer("most");
    if (call.tensor(2).present)
      most = std::clamp<std::int64_t>(*call.tensor(2).as<const std::int64_t>(), 0, room);
    if (call.tensor(3).present) overlap = *call.tensor(3).as<const float>();
    has_score = call.tensor(4).present;
    if (has_score) score = *call.tensor(4).as<const float>();
    if (!(overlap >= 0 && overlap <= 1))
      throw ArgumentError({.what = "heddle::non_max_suppression: C3 iou_threshold",
                           .where = {},
                           .expected = "0 to 1",
                           .got = fmt::format("{}", overlap)});
  }
  bool admits(float value) const {
    return static_cast<bool>(int{!std::isnan(value)} & (int{!has_score} | int{value > score}));
  }
};

float score_at(const KernelTensor& scores, std::int64_t batch, std::int64_t kind, std::int64_t n) {
  return scores.as<const float>()[batch * scores.strides()[0] + kind * scores.strides()[1] +
                                  n * scores.strides()[2]];
}

/// A box with its score as one number, the larger the sooner it is looked at: by the score, of equal ones the box with the lower
/// number first. A box whose number takes more than 32 bits would have 16 GiB of scores before it.
class Candidate {
 public:
  Candidate() = default;
  Candidate(float score, std::uint32_t box) {
    // Of floats from the least to the largest, -0 as 0.
    const auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);
    const std::uint32_t ordered = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
    key_ = std::uint64_t{ordered} << 32 | ~box;
  }
  std::int64_t box() const { return std::int64_t{~static_cast<std::uint32_t>(key_)}; }
  friend auto operator<=>(const Candidate&, const Candidate&) = default;

 private:
  std::uint64_t key_ = 0;
};

/// The boxes that have been kept, corner by corner, so that several are compared at once. Those without area overlap none.
class KeptCorners {
 public:
  void add(const Box& box) {
    const float area = box.area();
    if (!(area > 0)) return;
    if (count_ % kLanes == 0) blocks_.emplace_back();
    Block& block = blocks_.back();
    const std::size_t lane = count_++ % kLanes;
    for (std::size_t d : {0, 1}) {
      block.low[d][lane] = box.low[d];
      block.high[d][lane] = box.high[d];
    }
    block.area[lane] = area;
  }

  /// Whether overlap() is true of `box` and any of them.
  bool any_overlaps(const Box& box, float threshold) const {
    const float area = box.area();
    return area > 0 && std::ranges::any_of(blocks_, [&](const Block& block) {
             return block.overlaps(box, area, threshold);
           });
  }

 private:
  static constexpr std::size_t kLanes = 16;

  /// Empty lanes hold a box without extent.
  struct Block {
    std::array<float, kLanes> low[2] = {};
    std::array<float, kLanes> high[2] = {};
    std::array<float, kLanes> area = {};

    /// Loops of floats and of nothing else, beside numbers that no store may change, which compilers turn into vectors.
    bool overlaps(const Box& box, float box_area, float threshold) const {
      const float bottom = box.low[0], top = box.high[0], left = box.low[1], right = box.high[1];
      std::array<float, kLanes> shares;
      for (std::size_t k = 0; k < kLanes; ++k) {
        const float height = std::min(high[0][k], top) - std::max(low[0][k], bottom);
        const float width = std::min(high[1][k], right) - std::max(low[1][k], left);
        const float common = std::max(height, 0.0f) * std::max(width, 0.0f);
        shares[k] = common / (area[k] + box_area - common);
      }
      int found = 0;
      for (std::size_t k = 0; k < kLanes; ++k) found |= shares[k] > threshold ? 1 : 0;
      return found != 0;
    }
  };

  std::vector<Block> blocks_;
  std::size_t count_ = 0;
};

/// Those that the score admits, in no order.
std::vector<Candidate> candidates_of(const KernelTensor& scores, const Limits& limits,
                                     std::int64_t batch, std::int64_t kind) {
  const std::int64_t boxes = scores.sizes()[2];
  const std::int64_t stride = scores.strides()[2];
  const float* first =
      scores.as<const float>() + batch * scores.strides()[0] + kind * scores.strides()[1];
  std::vector<Candidate> candidates(static_cast<std::size_t>(boxes));
  std::size_t count = 0;
  for (std::int64_t n = 0; n < boxes; ++n) {
    // Without a branch, which is as often wrong as right.
    const float score = first[n * stride];
    candidates[count] = Candidate(score, static_cast<std::uint32_t>(n));
    count += limits.admits(score) ? 1 : 0;
  }
  candidates.resize(count);
  return candidates;
}

/// The boxes of one class of one batch that are kept, best first.
std::vector<std::int64_t> kept_boxes(const KernelCall& call, const Limits& limits,
                                     std::int64_t batch, std::int64_t kind) {
  // A heap: what comes after the last box that is kept is not sorted.
  std::vector<Candidate> heap = candidates_of(call.tensor(1), limits, batch, kind);
  std::ranges::make_heap(heap);
  const bool centred = call.flag("center_point_box");
  std::vector<std::int64_t> kept;
  KeptCorners corners;
  while (!heap.empty() && static_cast<std::int64_t>(kept.size()) < limits.most) {
    std::ranges::pop_heap(heap);
    const std::int64_t candidate = heap.back().box();
    heap.pop_back();
    const Box box = box_at(call.tensor(0), batch, candidate, centred);
    if (corners.any_overlaps(box, limits.overlap)) continue;
    kept.push_back(candidate);
    corners.add(box);
  }
  return kept;
}

using KeptBoxes = std::vector<std::int64_t> (*)(const KernelCall&, const Limits&, std::int64_t,
                                                std::int64_t);

void write_kept(const KernelCall& call, KeptBoxes kept_of) {
  const Limits limits(call);
  const auto sizes = call.tensor(1).sizes();
  auto* row = call.results[0].as<std::int64_t>();
  std::int64_t count = 0;
  for (std::int64_t batch = 0; batch < sizes[0]; ++batch) {
    for (std::int64_t kind = 0; kind < sizes[1]; ++kind) {
      for (const std::int64_t box : kept_of(call, limits, batch, kind)) {
        for (const std::int64_t number : {batch, kind, box}) *row++ = number;
        ++count;
      }
    }
  }
  *call.results[1].as<std::int64_t>() = count;
}

void suppress(const KernelCall& call) { write_kept(call, kept_boxes); }

/// Over and over the best of the boxes that are left, which then drops those that overlap it.
std::vector<std::int64_t> kept_one_by_one(const KernelCall& call, const Limits& limits,
                                          std::int64_t batch, std::int64_t kind) {
  const KernelTensor& scores = call.tensor(1);
  const bool centred = call.flag("center_point_box");
  std::vector<bool> left;
  for (std::int64_t n = 0; n < scores.sizes()[2]; ++n)
    left.push_back(limits.admits(score_at(scores, batch, kind, n)));
  std::vector<std::int64_t> kept;
  while (static_cast<std::int64_t>(kept.size()) < limits.most) {
    std::int64_t best = -1;
    for (std::int64_t n = 0; n < scores.sizes()[2]; ++n)
      if (left[static_cast<std::size_t>(n)] &&
          (best < 0 || score_at(scores, batch, kind, n) > score_at(scores, batch, kind, best)))
        best = n;
    if (best < 0) break;
    kept.push_back(best);
    left[static_cast<std::size_t>(best)] = false;
    const Box chosen = box_at(call.tensor(0), batch, best, centred);
    for (std::int64_t n = 0; n < scores.sizes()[2]; ++n)
      if (overlap(chosen, box_at(call.tensor(0), batch, n, centred), limits.overlap))
        left[static_cast<std::size_t>(n)] = false;
  }
  return kept;
}

void reference(const KernelCall& call) {
  std::ranges::fill_n(call.results[0].as<std::int64_t>(), call.results[0].count(), 0);
  write_kept(call, kept_one_by_one);
}

}  // namespace

std::unique_ptr<CustomOp> non_max_suppression_op() {
  auto op = std::make_unique<CustomOp>();
  op->schema = parse_op_schema(
      "heddle::non_max_suppression(Tensor boxes, Tensor scores, Tensor? max_output, "
      "Tensor? iou_threshold, Tensor? score_threshold, SymInt most, "
      "bool center_point_box=false) -> (Tensor, Tensor)");
  op->shape = shape_non_max_suppression;
  op->cpu = suppress;
  op->reference = reference;
  return op;
}

}  // namespace heddle::ir::ops
