#include "engine/c_status.h"

#include <exception>
#include <new>
#include <string>

#include "heddle/error.h"

namespace heddle::engine {

namespace {

thread_local std::string last_error;

template <typename E>
bool is(const std::exception& error) {
  return dynamic_cast<const E*>(&error) != nullptr;
}

heddle_status code_of(const std::exception& error) {
  if (is<ParseError>(error)) return HEDDLE_ERROR_PARSE;
  if (is<ArgumentError>(error)) return HEDDLE_ERROR_ARGUMENT;
  if (is<ShapeError>(error)) return HEDDLE_ERROR_SHAPE;
  if (is<DTypeError>(error)) return HEDDLE_ERROR_DTYPE;
  if (is<DeviceLost>(error)) return HEDDLE_ERROR_DEVICE_LOST;
  if (is<DeviceError>(error)) return HEDDLE_ERROR_DEVICE;
  if (is<IndexError>(error)) return HEDDLE_ERROR_INDEX;
  if (is<TraceError>(error)) return HEDDLE_ERROR_TRACE;
  if (is<AliasingError>(error)) return HEDDLE_ERROR_ALIASING;
  if (is<ModelError>(error)) return HEDDLE_ERROR_MODEL;
  if (is<UnsupportedError>(error)) return HEDDLE_ERROR_UNSUPPORTED;
  if (is<OptionError>(error)) return HEDDLE_ERROR_OPTION;
  if (is<CompileError>(error)) return HEDDLE_ERROR_COMPILE;
  if (is<Cancelled>(error)) return HEDDLE_ERROR_CANCELLED;
  if (is<OutOfMemory>(error) || is<std::bad_alloc>(error)) return HEDDLE_ERROR_OUT_OF_MEMORY;
  return HEDDLE_ERROR_INTERNAL;
}

/// Keeps no text rather than fail.
void keep(const char* text) noexcept {
  try {
    last_error = text;
  } catch (...) {
    last_error.clear();
  }
}

}  // namespace

heddle_status status_of_current_exception() noexcept {
  try {
    throw;
  } catch (const CallbackError& error) {
    keep(error.what());
    return HEDDLE_ERROR_CALLBACK;
  } catch (const std::exception& error) {
    keep(error.what());
    return code_of(error);
  } catch (...) {
    keep("an exception that is no std::exception");
    return HEDDLE_ERROR_INTERNAL;
  }
}

void check_not_null(const char* function, const void* pointer) {
  if (pointer == nullptr)
    throw ArgumentError(
        {.what = function, .where = {}, .expected = "an address", .got = "a null pointer"});
}

}  // namespace heddle::engine

const char* heddle_last_error(void) { return heddle::engine::last_error.c_str(); }
