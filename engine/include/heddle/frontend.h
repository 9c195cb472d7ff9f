// For front ends that turn a model into traces: names, sizes and times that only they know.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "heddle/engine.h"
#include "heddle/symint.h"

namespace heddle::detail {

/// The size symbol sN, for the declared sizes of a Signature. Equal ids mean equal sizes.
HEDDLE_API SymInt size_symbol(std::uint32_t id);

/// `size` as an error shows it: the number that the call which is traced says, else as to_string().
HEDDLE_API std::string seen(const SymInt& size);

/// Whether a < b, as comparing them says; nothing where only the run tells.
HEDDLE_API std::optional<bool> less_before_run(const SymInt& a, const SymInt& b);

/// The same of a = b.
HEDDLE_API std::optional<bool> equal_before_run(const SymInt& a, const SymInt& b);

// Sizes that a model computes in floating point: a real is a SymInt as well, whose value are the bits of a double and mean nothing
// as an integer. It stays symbolic like any other.

HEDDLE_API SymInt real_of(const SymInt& size);
HEDDLE_API SymInt real_of(double number);
/// A real cut to an integer; 0 of one that is none or 2^62 and more.
HEDDLE_API SymInt whole_of(const SymInt& real);
/// A function that the text form of sizes has: "radd", "rsub", "rmul", "rdiv", "rmin", "rmax", and of one real "rfloor", "rceil", "rround",
/// "rsqrt", "rabs", "single" (rounds to a float).
HEDDLE_API SymInt apply_real(std::string_view function, const SymInt& a, const SymInt& b = 0);
/// The number that a real is in this trace, and guards that pin the sizes that it follows from.
HEDDLE_API double real_number(const SymInt& real);
/// The size with what is known of the sizes of this trace.
HEDDLE_API SymInt simplified(const SymInt& size);

/// Whether a size is one of few operations, which whoever evaluates it walks through.
HEDDLE_API bool is_short(const SymInt& size);

/// Records how long reading and checking the model took (EngineStats::load_ms).
HEDDLE_API void set_load_ms(Engine& engine, double milliseconds);

/// Names a tensor that the trace function captures, before the first trace. `is_label`: graphs shall show the name.
HEDDLE_API void name_parameter(Engine& engine, const std::string& name, const Tensor& parameter,
                               bool is_label);

/// Whether a region is being traced on this thread: symbolic tensors made now are gone when it ends.
HEDDLE_API bool in_region();

/// While alive, what is traced on this thread comes from `name` (a node of a model) and not from a
/// source line, and its values are called `values`, with numbers where they are several; empty: numbers
/// alone. Scopes nest; the innermost one counts.
class HEDDLE_API LocationScope {
 public:
  explicit LocationScope(std::string name, std::string values = {});
  ~LocationScope();
  LocationScope(const LocationScope&) = delete;
  LocationScope& operator=(const LocationScope&) = delete;
  const std::string& name() const { return name_; }
  const std::string& values() const { return values_; }

 private:
  std::string name_;
  std::string values_;
  const LocationScope* outer_;
};

}  // namespace heddle::detail
