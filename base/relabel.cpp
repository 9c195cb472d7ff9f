#include "base/relabel.h"

#include <exception>
#include <string>

namespace heddle::base {
namespace {

template <typename E>
void rethrow(const Error& error, const Error::Parts& parts) {
  if (dynamic_cast<const E*>(&error) == nullptr) return;
  if (dynamic_cast<const std::nested_exception*>(&error) != nullptr)
    std::throw_with_nested(E(parts));
  throw E(parts);
}

template <typename... E>
void rethrow_first(const Error& error, const Error::Parts& parts) {
  (rethrow<E>(error, parts), ...);
}

}  // namespace

void rethrow_as(const Error& error, const Error::Parts& parts) {
  // Each class before what it is derived from.
  rethrow_first<ArgumentError, ShapeError, DTypeError, DeviceLost, DeviceError, IndexError,
                TraceError, AliasingError, MutationError, SideEffectError, StructureError,
                ParseError, ModelError, UnsupportedError, OptionError, CompileError, InvariantError,
                CycleError, OutOfMemory>(error, parts);
}

void rethrow_labelled(const Error& error, std::string_view label) {
  Error::Parts parts = error.parts();
  parts.what = std::string(label) + ": " + parts.what;
  rethrow_as(error, parts);
}

}  // namespace heddle::base
