// Grows a random graph one op at a time, and follows how exact every value is.
#pragma once

#include <array>
#include <initializer_list>
#include <optional>
#include <random>
#include <string_view>

#include "tests/fuzz/random_case.h"

namespace heddle::fuzz {

struct Item {
  ir::Value value;
  Quality quality;
  DType dtype() const { return value.meta().dtype; }
  std::int64_t rank() const { return value.meta().rank(); }
  const ir::Dims& sizes() const { return value.meta().sizes; }
};

/// The part of [-inf, inf] that a unary op is well behaved on, and how operands are brought there.
enum class Domain : std::uint8_t { Any, Small, Unit, Positive, AboveOne };

class Grower {
 public:
  explicit Grower(std::uint32_t seed);
  Case make();

 private:
  // Chance.
  int pick(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }
  bool chance(int percent) { return pick(100) < percent; }
  template <typename T, std::size_t N>
  T one_of(const T (&choices)[N]) {
    return choices[pick(static_cast<int>(N))];
  }
  DType any_dtype();

  // Operands.
  Item any();
  /// A value for which `accept` holds, or a new input made by `otherwise`.
  template <typename F, typename G>
  Item any_such(F&& accept, G&& otherwise) {
    for (int turn = 0; turn < 12; ++turn) {
      const Item item = any();
      if (accept(item)) return item;
    }
    return otherwise();
  }
  Item floating();
  Item exact();
  Item boolean_item();
  Item like(const Item& item);  ///< another value that broadcasts with it
  Item input(DType dtype, ir::Dims sizes, std::optional<Fill> fill = std::nullopt,
             bool may_be_special = true);
  /// A small constant, a parameter, or an input, all finite: what a model has for weights.
  Item weight(DType dtype, ir::Dims sizes);
  Item indices(ir::Dims sizes, const ir::SymExpr& limit, bool negative = true);
  Item scalar(DType dtype, double value);
  Item into_domain(Item item, Domain domain);
  Item as(const Item& item, DType dtype);  ///< converted, if it is not of that dtype

  // Sizes.
  ir::Dims random_sizes(int max_rank);
  ir::SymExpr random_size();
  std::int64_t most(const ir::SymExpr& size) const;   ///< over all calls
  std::int64_t least(const ir::SymExpr& size) const;  ///< over all calls
  std::int64_t most_elements(const ir::Dims& sizes) const { return most(base::product(sizes)); }
  std::int64_t any_axis(const Item& item) { return pick(static_cast<int>(item.rank())); }
  std::vector<std::int64_t> some_axes(const Item& item);
  std::int64_t least_axis(const Item& item) const;  ///< the least size of any of its axes
  ir::SymExpr count_over(const Item& item, const std::vector<std::int64_t>& axes) const;

  // Results.
  /// Emits a node whose outputs have `quality`; empty if the op refuses these operands.
  std::optional<Item> emit(std::string_view op, std::initializer_list<Item> operands,
                           ir::Attrs attrs, Quality quality);
  const ir::Node* call(std::string_view op, const std::vector<ir::Value>& operands,
                       ir::Attrs attrs);
  void keep(ir::Value value, Quality quality);
  /// `quality` after one rounding in `dtype`.
  static Quality rounded(Quality quality, DType dtype);
  /// A sum of `count` products of two operands.
  static Quality dot(const Quality& a, const Quality& b, double count, DType dtype);
  static Quality converted(const Quality& quality, DType from, DType to);
  static bool usable(const Item& item);

  // Op families: one op each call.
  void grow();
  void unary();
  void smooth_unary();
  void binary();
  void integer_binary();
  void compare();
  void select();
  void convert();
  void pass_through_float8();
  void view();
  void slice();
  void reshape();
  void expand();
  void pad();
  void concat();
  void split();
  void iota();
  void reduce();
  void statistics();
  void argreduce();
  void softmax();
  void norm();
  void channel_norm();
  void cumsum();
  void twins();
  void chain();
  void order();
  void matmul();
  void grouped_matmul();
  void dequantised_matmul();
  void convolution();
  void pool();
  void attention();
  void written_attention(const std::array<Item, 4>& parts, const Quality& score,
                         const Quality& result);
  void resize();
  void gather();
  void scatter();
  void random();
  void bind_sizes();
  void keep_size(std::uint32_t symbol);
  void finish_outputs();

  std::mt19937 random_;
  ir::GraphBuilder builder_;
  Case case_;
  std::vector<Item> items_;
  std::int64_t max_elements_ = 6000;
  DType main_dtype_ = f32;
  bool specials_ = false;
  bool strided_ = false;
  bool parameters_ = false;
};

}  // namespace heddle::fuzz
