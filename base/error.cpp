#include "heddle/error.h"

#include <utility>

namespace heddle {

Error::Error(Parts parts) : std::runtime_error(format(parts)), parts_(std::move(parts)) {}
Error::~Error() = default;

std::string Error::format(const Parts& parts) {
  std::string text = parts.what;
  if (!parts.where.empty()) text += (text.empty() ? "at " : " at ") + parts.where;
  std::string comparison;
  if (!parts.expected.empty()) comparison = "expected " + parts.expected;
  if (!parts.got.empty()) comparison += (comparison.empty() ? "got " : ", got ") + parts.got;
  if (comparison.empty()) return text;
  return text.empty() ? comparison : text + ": " + comparison;
}

// The destructors are defined here so that each type's information lies in one library only, which
// a catch across library boundaries needs.
#define HEDDLE_DEFINE_ERROR_MEMBERS(Name, Base)       \
  Name::Name(Parts parts) : Base(std::move(parts)) {} \
  Name::~Name() = default

HEDDLE_DEFINE_ERROR_MEMBERS(ArgumentError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(ShapeError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(DTypeError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(DeviceError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(DeviceLost, DeviceError);
HEDDLE_DEFINE_ERROR_MEMBERS(IndexError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(TraceError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(AliasingError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(MutationError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(SideEffectError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(StructureError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(ParseError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(ModelError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(UnsupportedError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(OptionError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(CompileError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(InvariantError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(CycleError, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(OutOfMemory, Error);
HEDDLE_DEFINE_ERROR_MEMBERS(Cancelled, Error);

#undef HEDDLE_DEFINE_ERROR_MEMBERS

}  // namespace heddle
