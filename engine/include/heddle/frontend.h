// For front ends that turn a model into traces: names, sizes and times that only they know.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "heddle/engine.h"
#include "heddle/symint.h"

namespace heddle::detail {

/// The size symbol sN, for the declared sizes of a Signature. Equal ids mean equal sizes.
HEDDLE_API SymInt size_symbol(std::uint32_t id);

/// `size` as an error shows it: the number that the call which is traced says, else as to_string().
HEDDLE_API std::string seen(const SymInt& size);

/// Whether a < b, as comparing them says; nothing where only the run tells.
HEDDLE_API std::optional<bool> less_before_run(const SymInt& a, const SymInt& b);

/// Whether a size follows from one that only the run tells.
HEDDLE_API bool is_late(const SymInt& size);

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
