// Symbolic integer expressions: sizes, strides, offsets and kernel indices.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace heddle::base {

/// A named unknown. Size symbols print as s0, s1 (sizes of inputs), unbacked ones as u0 (known only
/// at run time), axes as i0 (a loop variable of a kernel), temporaries as t0 (a scalar computed in
/// a kernel, for example a gathered index).
struct Symbol {
  enum class Kind : std::uint8_t { Size, Unbacked, Axis, Temp };
  Kind kind = Kind::Size;
  std::uint32_t id = 0;

  friend auto operator<=>(const Symbol&, const Symbol&) = default;
  std::string to_string() const;
};

class SymExpr;

/// Concrete values of symbols.
using SymbolValues = std::map<Symbol, std::int64_t>;
using SymbolExprs = std::map<Symbol, SymExpr>;

/// What is known about symbols: an inclusive range for each, whose ends may be expressions (an axis
/// of extent s0 lies in [0, s0 - 1]). A symbol without an entry: a Size is >= 0 (>= 1 if
/// `sizes_positive`), an Unbacked >= 0, anything else unbounded.
struct Facts {
  struct Range;
  bool sizes_positive = false;

  const std::map<Symbol, Range>& ranges() const { return ranges_; }
  void set_range(Symbol symbol, SymExpr low, SymExpr high);
  void set_range(Symbol symbol, Range range);
  void set_low(Symbol symbol, SymExpr low);

  /// Facts with the same number, unless it is 0, have the same ranges; those of others may be the same too.
  std::uint64_t version() const { return version_.number; }
  /// Bits (symbol_bit() of symexpr_node.h) of the symbols whose range may be a single value, and perhaps of others.
  std::uint64_t single_valued() const { return single_valued_; }

 private:
  /// What is moved from has none.
  struct Version {
    Version() = default;
    Version(const Version&) = default;
    Version(Version&& other) noexcept : number(std::exchange(other.number, 0)) {}
    Version& operator=(const Version&) = default;
    Version& operator=(Version&& other) noexcept {
      number = std::exchange(other.number, 0);
      return *this;
    }
    std::uint64_t number = 0;
  };
  void note(Symbol symbol, const Range& range);

  std::map<Symbol, Range> ranges_;
  Version version_;
  std::uint64_t single_valued_ = 0;
};

/// An immutable integer expression in canonical form: a polynomial over atoms, where an atom is a
/// symbol or floor(a/b), mod(a,b), min(a,b), max(a,b), or whole(x) of a real x (base/symreal.h). Equal polynomials compare
/// equal, so (s0+1)*2 == 2*s0+2. Constants are stored in place; the rest is shared.
///
/// Arithmetic that overflows 64 bits on constants throws ShapeError ("size overflows 64 bits").
/// Division rounds towards minus infinity, mod has the sign of the divisor (Python's rule).
class SymExpr {
 public:
  enum class Kind : std::uint8_t {
    Constant,
    Symbol,
    Sum,
    Product,
    FloorDiv,
    Mod,
    Min,
    Max,
    // Real arithmetic; is_real() of base/symreal.h.
    Whole,
    Real,
    RealAdd,
    RealSub,
    RealMul,
    RealDiv,
    RealMin,
    RealMax,
    RealFloor,
    RealCeil,
    RealRound,
    RealSqrt,
    RealAbs,
    RealSingle,
  };

  SymExpr() : constant_(0) {}
  SymExpr(std::int64_t value) : constant_(value) {}  // NOLINT: implicit on purpose
  SymExpr(int value) : constant_(value) {}           // NOLINT: implicit on purpose
  SymExpr(Symbol symbol);                            // NOLINT: implicit on purpose
  static SymExpr size(std::uint32_t id);             ///< sN
  static SymExpr unbacked(std::uint32_t id);         ///< uN
  static SymExpr axis(std::uint32_t id);             ///< iN
  static SymExpr temp(std::uint32_t id);             ///< tN

  Kind kind() const;
  bool is_constant() const { return node_ == nullptr; }
  bool is_constant(std::int64_t value) const { return node_ == nullptr && constant_ == value; }
  std::int64_t constant() const;  ///< HD_CHECKs is_constant()
  std::optional<std::int64_t> as_constant() const;
  bool is_symbol() const;
  Symbol symbol() const;  ///< HD_CHECKs is_symbol()

  /// Operands: of a Sum its terms (each a product with its coefficient), of a Product its factors
  /// (the first is the constant coefficient when it is not 1), of the rest the two arguments (of one argument the other is 0).
  /// What emitters walk.
  std::vector<SymExpr> operands() const;

  friend SymExpr operator+(const SymExpr& a, const SymExpr& b);
  friend SymExpr operator-(const SymExpr& a, const SymExpr& b);
  friend SymExpr operator*(const SymExpr& a, const SymExpr& b);
  friend SymExpr operator-(const SymExpr& a);
  SymExpr& operator+=(const SymExpr& b) { return *this = *this + b; }
  SymExpr& operator*=(const SymExpr& b) { return *this = *this * b; }

  friend SymExpr floordiv(const SymExpr& a, const SymExpr& b);
  friend SymExpr ceildiv(const SymExpr& a, const SymExpr& b);  ///< floordiv(a + b - 1, b); b > 0
  friend SymExpr mod(const SymExpr& a, const SymExpr& b);
  friend SymExpr min(const SymExpr& a, const SymExpr& b);
  friend SymExpr max(const SymExpr& a, const SymExpr& b);

  friend bool operator==(const SymExpr& a, const SymExpr& b);
  /// A total order, the same in every run (used for canonical forms and keys).
  static int compare(const SymExpr& a, const SymExpr& b);
  std::uint64_t hash() const;

  /// The text of IR files: "2*s0+1", "floor(s0/2)", "mod(s0,4)", "min(s0,8)".
  std::string to_string() const;

  /// The value under `values`. HD_CHECKs that every symbol has one. Throws ShapeError on overflow
  /// or division by zero.
  std::int64_t evaluate(const SymbolValues& values) const;
  /// The same with dense size values: sN is sizes[N]. For hot paths; no other symbol kinds.
  std::int64_t evaluate_sizes(std::span<const std::int64_t> sizes) const;
  SymExpr substitute(const SymbolExprs& replacements) const;
  /// Adds the symbols of this expression to `out`, sorted and without repeats.
  void collect_symbols(std::vector<Symbol>& out) const;
  bool mentions(Symbol symbol) const;
  /// Any symbol of this kind; takes no walk.
  bool mentions(Symbol::Kind kind) const;

  /// This expression with what `facts` allow: floor(i0*s1+i1 / s1) = i0 when 0 <= i1 < s1, and the
  /// same for mod, min and max.
  SymExpr simplify(const Facts& facts) const;

  /// If this is coefficient*symbol + rest with neither mentioning `symbol` (nor an atom that does):
  /// the pair. Nothing otherwise.
  struct Linear;
  std::optional<Linear> linear_in(Symbol symbol) const;

  struct Node;  // in symexpr.cpp

 private:
  explicit SymExpr(std::shared_ptr<const Node> node);
  friend struct SymExprAccess;

  std::int64_t constant_ = 0;
  std::shared_ptr<const Node> node_;
};

// The friends again, for calls with a namespace or with constants only.
SymExpr floordiv(const SymExpr& a, const SymExpr& b);
SymExpr ceildiv(const SymExpr& a, const SymExpr& b);
SymExpr mod(const SymExpr& a, const SymExpr& b);
SymExpr min(const SymExpr& a, const SymExpr& b);
SymExpr max(const SymExpr& a, const SymExpr& b);

struct SymExpr::Linear {
  SymExpr coefficient;
  SymExpr rest;
};

struct Facts::Range {
  std::optional<SymExpr> low;
  std::optional<SymExpr> high;
};

/// True only if `expr` >= 0 follows from `facts`; false when unknown.
bool provably_nonnegative(const SymExpr& expr, const Facts& facts);
/// `expr` / `divisor` as polynomials, when exact.
std::optional<SymExpr> divide_exact(const SymExpr& expr, const SymExpr& divisor);

/// The product of `sizes`: the number of elements.
SymExpr product(std::span<const SymExpr> sizes);

/// Parses the text form. @throws ParseError naming the position.
SymExpr parse_symexpr(std::string_view text);

/// A comparison of two expressions: what a guard tests.
struct Predicate {
  enum class Op : std::uint8_t { Eq, Ne, Lt, Le };
  Op op = Op::Eq;
  SymExpr left;
  SymExpr right;

  friend bool operator==(const Predicate&, const Predicate&) = default;
  Predicate negated() const;
  bool evaluate(const SymbolValues& values) const;
  /// True or false if `facts` decide it.
  std::optional<bool> decide(const Facts& facts) const;
  std::string to_string() const;  ///< "s0 == s1", "s0 < 4"
};

}  // namespace heddle::base
