#include "heddle/kernel_call.h"

#include "heddle/error.h"

namespace heddle {

namespace {

template <typename T>
const T& attribute(const KernelCall& call, std::string_view name, const char* kind) {
  const auto found = call.attrs == nullptr ? KernelAttrs::const_iterator() : call.attrs->find(name);
  if (call.attrs != nullptr && found != call.attrs->end()) {
    if (const T* value = std::get_if<T>(&found->second)) return *value;
  }
  throw ArgumentError({.what = std::string(call.op) + ": attribute " + std::string(name),
                       .where = {},
                       .expected = kind,
                       .got = call.attrs != nullptr && found != call.attrs->end()
                                  ? "one of another kind"
                                  : "none of this name"});
}

}  // namespace

std::int64_t KernelCall::integer(std::string_view name) const {
  return attribute<std::int64_t>(*this, name, "an int");
}
double KernelCall::number(std::string_view name) const {
  return attribute<double>(*this, name, "a float");
}
bool KernelCall::flag(std::string_view name) const {
  return attribute<bool>(*this, name, "a bool");
}
const std::string& KernelCall::text(std::string_view name) const {
  return attribute<std::string>(*this, name, "a str");
}
DType KernelCall::dtype(std::string_view name) const {
  return attribute<DType>(*this, name, "a dtype");
}
const std::vector<std::int64_t>& KernelCall::integers(std::string_view name) const {
  return attribute<std::vector<std::int64_t>>(*this, name, "an int[]");
}
const std::vector<double>& KernelCall::numbers(std::string_view name) const {
  return attribute<std::vector<double>>(*this, name, "a float[]");
}

}  // namespace heddle
