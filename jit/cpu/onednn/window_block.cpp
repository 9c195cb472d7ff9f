#include "jit/cpu/onednn/window_block.h"

namespace heddle::jit::onednn::windows {

namespace {

/// Rows of the result that a block has a part of, one after another.
class Rows {
 public:
  Rows(const Shape& s, const Block& block) : s_(s), left_(block.count) {
    const std::int64_t columns = s.result[kWidth];
    begin_ = block.from % columns;
    std::int64_t row = block.from / columns;
    for (const std::size_t d : {kHeight, kDepth}) {
      at_[d] = row % s.result[d];
      row /= s.result[d];
    }
    image_ = row;
  }

  bool is_done() const { return left_ == 0; }
  std::int64_t place() const { return place_; }  ///< of its first position in the block
  std::int64_t begin() const { return begin_; }  ///< its first column
  std::int64_t end() const { return std::min(s_.result[kWidth], begin_ + left_); }

  /// Whether windows reach over the upper or lower edge of x.
  bool is_at_edge() const {
    const std::int64_t first = s_.begin(kHeight, at_[kHeight]);
    return first < 0 || first + s_.reach(kHeight) >= s_.x[kHeight];
  }

  void next() {
    place_ += end() - begin_;
    left_ -= end() - begin_;
    begin_ = 0;
    if (++at_[kHeight] < s_.result[kHeight]) return;
    at_[kHeight] = 0;
    if (++at_[kDepth] < s_.result[kDepth]) return;
    at_[kDepth] = 0;
    ++image_;
  }

  /// Puts columns [from, to) of the row into slots.
  void put(const float* x, std::int64_t from, std::int64_t to, Block& block) const {
    const std::int64_t depth = s_.begin(kDepth, at_[kDepth]);
    const std::int64_t height = s_.begin(kHeight, at_[kHeight]);
    std::int64_t width = s_.begin(kWidth, from);
    const std::int64_t row = (image_ * s_.x[kDepth] + depth) * s_.x[kHeight] + height;
    const std::int64_t element = sizeof(float) * s_.all_channels;
    // Addresses outside of x are computed, not read: integers, which may be any.
    std::int64_t address =
        reinterpret_cast<std::int64_t>(x) + (row * s_.x[kWidth] + width) * element;
    for (std::int64_t column = from; column < to; ++column) {
      const auto slot = static_cast<std::size_t>(block.filled++);
      block.place[slot] = place_ + column - begin_;
      block.begin[kDepth][slot] = depth;
      block.begin[kHeight][slot] = height;
      block.begin[kWidth][slot] = width;
      block.address[slot] = address;
      width += s_.strides[kWidth];
      address += s_.strides[kWidth] * element;
    }
  }

 private:
  const Shape& s_;
  Volume at_{};
  std::int64_t image_ = 0, begin_ = 0, left_, place_ = 0;
};

}  // namespace

void order(const Shape& s, const float* x, Block& block) {
  block.filled = 0;
  block.ends_count = 0;
  const std::int64_t columns = s.result[kWidth];
  const bool splits =
      s.channels >= kLeastEdgeChannels && s.widths.vectors > 2 && block.count >= 2 * columns;
  for (Rows rows(s, block); !rows.is_done(); rows.next()) {
    const std::int64_t begin = std::max(rows.begin(), s.inner);
    const std::int64_t end = std::max(begin, std::min(rows.end(), s.outer));
    const bool alone = splits && end - begin >= kLeastEdgeColumns && rows.is_at_edge();
    if (alone) block.end_run();
    rows.put(x, begin, end, block);
    if (alone) block.end_run();
  }
  block.first_copied = block.filled;
  const bool copies = s.copies() && !splits && block.count - block.filled <= kMostCopies;
  if (!copies) block.end_run();
  block.joined_runs = s.joins() ? block.ends_count : 0;
  block.joined_slots = s.joins() ? block.filled : 0;
  const auto put_edges = [&](std::int64_t first, std::int64_t last) {
    for (Rows rows(s, block); !rows.is_done(); rows.next()) {
      const std::int64_t begin = std::max(rows.begin(), first);
      rows.put(x, begin, std::max(begin, std::min(rows.end(), last)), block);
    }
  };
  const std::int64_t each = splits ? 1 : columns;
  for (std::int64_t column = 0; column < s.inner; column += each) {
    put_edges(column, std::min(column + each, s.inner));
    if (!copies) block.end_run();
  }
  for (std::int64_t column = s.outer; column < columns; column += each) {
    put_edges(column, std::min(column + each, columns));
    if (!copies) block.end_run();
  }
  if (!copies) return;
  block.end_run();
  block.joined_runs = block.ends_count;
  block.joined_slots = block.filled;
}

void copy_windows(const Shape& s, const Block& block, const Scratch& scratch) {
  float* to = scratch.copies;
  const std::int64_t across = s.taps[kWidth];
  for (std::int64_t slot = block.first_copied; slot < block.joined_slots; ++slot) {
    const auto at = static_cast<std::size_t>(slot);
    std::int64_t* entry = scratch.table + slot;
    const std::int64_t width = block.begin[kWidth][at];
    const std::int64_t first = std::clamp<std::int64_t>(-width, 0, across);
    const std::int64_t last = std::clamp<std::int64_t>(s.x[kWidth] - width, first, across);
    for (std::int64_t row = 0; row < s.taps[kDepth] * s.taps[kHeight]; ++row) {
      const std::int64_t depth = row / s.taps[kHeight] * s.dilations[kDepth];
      const std::int64_t height = row % s.taps[kHeight] * s.dilations[kHeight];
      const std::int64_t d = block.begin[kDepth][at] + depth;
      const std::int64_t h = block.begin[kHeight][at] + height;
      const bool inside = d >= 0 && d < s.x[kDepth] && h >= 0 && h < s.x[kHeight];
      *entry = reinterpret_cast<std::int64_t>(inside ? to : scratch.zeros);
      entry += scratch.joined_step;
      if (!inside) continue;
      const std::int64_t step =
          ((depth * s.x[kHeight] + height) * s.x[kWidth] + first) * s.channels;
      const auto* from = reinterpret_cast<const float*>(
          block.address[at] + step * static_cast<std::int64_t>(sizeof(float)));
      to = std::fill_n(to, first * s.channels, 0.0f);
      to = std::copy_n(from, (last - first) * s.channels, to);
      to = std::fill_n(to, (across - last) * s.channels, 0.0f);
    }
  }
}

}  // namespace heddle::jit::onednn::windows
