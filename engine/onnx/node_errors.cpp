#include "engine/onnx/node_errors.h"

#include <new>
#include <stdexcept>

#include "heddle/error.h"

namespace heddle::onnx {

namespace {

template <typename E>
[[noreturn]] void throw_at(const E& error, const std::string& where) {
  Error::Parts parts = error.parts();
  parts.where = where;
  throw E(std::move(parts));
}

Error::Parts failure(const std::string& type, const std::string& where,
                     const std::exception& error) {
  return {.what = type + ": conversion", .where = where, .expected = {}, .got = error.what()};
}

}  // namespace

Outputs convert_at(const std::string& type, const std::string& where,
                   const std::function<Outputs()>& convert) {
  try {
    return convert();
  } catch (const ShapeError& error) {
    if (!error.where().empty()) throw;
    throw_at(error, where);
  } catch (const ArgumentError& error) {
    if (!error.where().empty()) throw;
    throw_at(error, where);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc& error) {
    throw OutOfMemory(failure(type, where, error));
  } catch (const std::out_of_range& error) {
    throw ModelError(failure(type, where, error));
  } catch (const std::length_error& error) {
    throw ModelError(failure(type, where, error));
  } catch (const std::logic_error&) {
    throw;  // a broken assumption of the engine is told as one
  } catch (const std::exception& error) {
    throw ModelError(failure(type, where, error));
  }
}

}  // namespace heddle::onnx
