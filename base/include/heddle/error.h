// The errors a user can meet. Each says what failed, where, what was expected and what came.
#pragma once

#include <stdexcept>
#include <string>

#include "heddle/export.h"

namespace heddle {

/// Base of every error that the engine reports about its input or its surroundings.
///
/// what() is one text: "<what> at <where>: expected <expected>, got <got>", leaving out empty parts.
class HEDDLE_API Error : public std::runtime_error {
 public:
  struct Parts {
    std::string what{};      ///< the operation and the constraint: "matmul: C2 inner sizes agree"
    std::string where{};     ///< the user's source line or the ONNX node name; may be empty
    std::string expected{};  ///< may be empty
    std::string got{};       ///< may be empty
  };

  explicit Error(Parts parts);
  Error(const Error&) = default;
  Error& operator=(const Error&) = default;
  ~Error() override;

  const Parts& parts() const noexcept { return parts_; }
  const std::string& where() const noexcept { return parts_.where; }

  /// The parts as one line.
  static std::string format(const Parts& parts);

 private:
  Parts parts_;
};

#define HEDDLE_DEFINE_ERROR(Name, Base)     \
  class HEDDLE_API Name : public Base {     \
   public:                                  \
    explicit Name(Parts parts);             \
    Name(const Name&) = default;            \
    Name& operator=(const Name&) = default; \
    ~Name() override;                       \
  }

HEDDLE_DEFINE_ERROR(ArgumentError, Error);     ///< wrong count, name or value of an argument
HEDDLE_DEFINE_ERROR(ShapeError, Error);        ///< sizes, strides or rank that do not fit
HEDDLE_DEFINE_ERROR(DTypeError, Error);        ///< an element type that an operation does not take
HEDDLE_DEFINE_ERROR(DeviceError, Error);       ///< wrong, missing or failing device
HEDDLE_DEFINE_ERROR(DeviceLost, DeviceError);  ///< the device context did not survive
HEDDLE_DEFINE_ERROR(IndexError, Error);        ///< an index value out of range at run time
HEDDLE_DEFINE_ERROR(TraceError, Error);        ///< something that a traced callable may not do
HEDDLE_DEFINE_ERROR(AliasingError, Error);     ///< storage shared where it may not be
HEDDLE_DEFINE_ERROR(MutationError, Error);     ///< a write where none is allowed
HEDDLE_DEFINE_ERROR(SideEffectError, Error);   ///< a region's body keeps what it may not
HEDDLE_DEFINE_ERROR(StructureError, Error);  ///< host values that should be built alike and are not
HEDDLE_DEFINE_ERROR(ParseError, Error);      ///< text or bytes that do not parse
HEDDLE_DEFINE_ERROR(ModelError, Error);      ///< a malformed or hostile model file
HEDDLE_DEFINE_ERROR(UnsupportedError, Error);  ///< an operation, dtype or feature not implemented
HEDDLE_DEFINE_ERROR(OptionError, Error);       ///< an unknown option or a value it does not take
HEDDLE_DEFINE_ERROR(CompileError, Error);      ///< code generation or a device compiler failed
HEDDLE_DEFINE_ERROR(InvariantError, Error);    ///< a graph that breaks a rule of its stage
HEDDLE_DEFINE_ERROR(CycleError, Error);        ///< order edges that form a cycle; lists it
HEDDLE_DEFINE_ERROR(OutOfMemory, Error);       ///< an allocation failed or would pass the cap
HEDDLE_DEFINE_ERROR(Cancelled, Error);         ///< a call that its caller ended (heddle/stop.h)

#undef HEDDLE_DEFINE_ERROR

}  // namespace heddle
