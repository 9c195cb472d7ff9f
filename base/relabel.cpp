#include "base/relabel.h"

#include <exception>
#include <string>

namespace heddle::base {
namespace {

template <typename E>
void relabel(const Error& error, std::string_view label) {
  if (dynamic_cast<const E*>(&error) == nullptr) return;
  Error::Parts parts = error.parts();
  parts.what = std::string(label) + ": " + parts.what;
  if (dynamic_cast<const std::nested_exception*>(&error) != nullptr)
    std::throw_with_nested(E(std::move(parts)));
  throw E(std::move(parts));
}

template <typename... E>
void relabel_first(const Error& error, std::string_view label) {
  (relabel<E>(error, label), ...);
}

}  // namespace

void rethrow_labelled(const Error& error, std::string_view label) {
  // Each class before what it is derived from.
  relabel_first<ArgumentError, ShapeError, DTypeError, DeviceLost, DeviceError, IndexError,
                TraceError, AliasingError, MutationError, SideEffectError, StructureError,
                ParseError, ModelError, UnsupportedError, OptionError, CompileError, InvariantError,
                CycleError, OutOfMemory>(error, label);
}

}  // namespace heddle::base
