// A total order that items are put into, moved in and taken from; which of two comes first is one comparison.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle::base {

/// Items are numbers below a count that is given once. Labels grow along the list; where there is no room for
/// one more, all are given anew, which inserting many before one and the same item does not bring about.
class OrderList {
 public:
  using Item = std::uint32_t;

  explicit OrderList(std::size_t items) : links_(items + 1) { links_[end()] = {end(), end(), 0}; }

  /// Whether `a` comes before `b`; both are in the list.
  bool before(Item a, Item b) const { return links_[a].label < links_[b].label; }
  /// Puts `item`, which is not in the list, at its end.
  void append(Item item) { insert(item, end()); }
  /// Moves `item` to before `next`.
  void move(Item item, Item next) {
    remove(item);
    insert(item, next);
  }
  void remove(Item item) {
    links_[links_[item].previous].next = links_[item].next;
    links_[links_[item].next].previous = links_[item].previous;
  }

 private:
  struct Link {
    Item previous = 0;
    Item next = 0;
    std::int64_t label = 0;  ///< the end has none that matters
  };
  static constexpr std::int64_t kStep = std::int64_t{1} << 20;
  static constexpr std::int64_t kRoom = std::int64_t{1} << 40;

  Item end() const { return static_cast<Item>(links_.size() - 1); }

  void insert(Item item, Item next) {
    const Item previous = links_[next].previous;
    const std::int64_t low = previous == end() ? 0 : links_[previous].label;
    const std::int64_t gap = next == end() ? 2 * kRoom : links_[next].label - low;
    links_[item] = {previous, next, next == end() ? low + kRoom : low + std::min(kStep, gap / 2)};
    links_[previous].next = item;
    links_[next].previous = item;
    if (gap < 2) spread();
  }

  void spread() {
    std::int64_t label = 0;
    for (Item item = links_[end()].next; item != end(); item = links_[item].next)
      links_[item].label = label += kRoom;
  }

  std::vector<Link> links_;
};

}  // namespace heddle::base
