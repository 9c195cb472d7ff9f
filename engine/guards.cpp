#include "engine/guards.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/tensor_impl.h"
#include "heddle/error.h"

namespace heddle::engine {

using base::SymbolValues;
using base::SymExpr;

namespace {

std::string input_name(const Signature& signature, std::size_t k) {
  return k < signature.inputs.size() ? signature.inputs[k].name : fmt::format("input{}", k);
}

/// Binds or checks `expr` == `value`. Plain symbols bind; expressions are checked afterwards.
bool bind(const SymExpr& expr, std::int64_t value, SymbolValues& sizes) {
  if (expr.is_constant()) return expr.constant() == value;
  if (!expr.is_symbol()) return true;
  return sizes.emplace(expr.symbol(), value).first->second == value;
}

std::string mismatch(const InputGuard& guard, const char* what, std::size_t k,
                     const SymExpr& expected, std::int64_t got) {
  return fmt::format("input {}: {} {} is {}, not {}", guard.name, what, k, got,
                     expected.to_string());
}

/// The first thing about `tensor` that `guard` does not allow; binds symbols on the way.
std::string check_input(const InputGuard& guard, const Tensor::Impl& tensor, SymbolValues& sizes) {
  if (tensor.dtype != guard.dtype)
    return fmt::format("input {}: dtype is {}, not {}", guard.name, name_of(tensor.dtype),
                       name_of(guard.dtype));
  if (tensor.sizes.size() != guard.sizes.size())
    return fmt::format("input {}: rank is {}, not {}", guard.name, tensor.sizes.size(),
                       guard.sizes.size());
  if (tensor.row_major != guard.row_major)
    return fmt::format("input {}: layout is {}", guard.name,
                       tensor.row_major ? "row-major, not strided" : "strided, not row-major");
  for (std::size_t k = 0; k < guard.sizes.size(); ++k) {
    if (!bind(guard.sizes[k], tensor.sizes[k], sizes))
      return mismatch(guard, "size", k, guard.sizes[k], tensor.sizes[k]);
  }
  for (std::size_t k = 0; k < guard.strides.size(); ++k) {
    if (!bind(guard.strides[k], tensor.strides[k], sizes))
      return mismatch(guard, "stride", k, guard.strides[k], tensor.strides[k]);
  }
  return {};
}

/// Sizes declared as expressions (2*s0+1) hold for the bound symbols.
std::string check_expressions(const InputGuard& guard, const Tensor::Impl& tensor,
                              const SymbolValues& sizes) {
  for (std::size_t k = 0; k < guard.sizes.size(); ++k) {
    const SymExpr& size = guard.sizes[k];
    if (!size.is_constant() && !size.is_symbol() && size.evaluate(sizes) != tensor.sizes[k])
      return mismatch(guard, "size", k, size, tensor.sizes[k]);
  }
  return {};
}

void check_declared(const Signature& signature, std::span<const Tensor> inputs) {
  if (signature.inputs.empty()) return;
  if (signature.inputs.size() != inputs.size())
    throw ArgumentError({.what = "run: number of inputs",
                         .where = {},
                         .expected = std::to_string(signature.inputs.size()),
                         .got = std::to_string(inputs.size())});
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const ValueInfo& declared = signature.inputs[k];
    const Tensor::Impl& tensor = *inputs[k].impl();
    if (declared.dtype != tensor.dtype)
      throw DTypeError({.what = fmt::format("run: input {}", declared.name),
                        .where = {},
                        .expected = std::string(name_of(declared.dtype)),
                        .got = std::string(name_of(tensor.dtype))});
    bool fits = declared.sizes.size() == tensor.sizes.size();
    for (std::size_t d = 0; fits && d < declared.sizes.size(); ++d)
      fits = declared.sizes[d].is_symbolic() || declared.sizes[d].value() == tensor.sizes[d];
    if (!fits)
      throw ShapeError(
          {.what = fmt::format("run: input {}", declared.name),
           .where = {},
           .expected = declared.to_string(),
           .got = fmt::format("{}[{}]", name_of(tensor.dtype), fmt::join(tensor.sizes, ", "))});
  }
}

}  // namespace

Guards::Outcome Guards::match(std::span<const Tensor> tensors) const {
  Outcome outcome;
  if (tensors.size() != inputs.size()) {
    outcome.failed = fmt::format("number of inputs is {}, not {}", tensors.size(), inputs.size());
    return outcome;
  }
  for (std::size_t k = 0; k < inputs.size() && outcome.failed.empty(); ++k)
    outcome.failed = check_input(inputs[k], *tensors[k].impl(), outcome.sizes);
  for (std::size_t k = 0; k < inputs.size() && outcome.failed.empty(); ++k)
    outcome.failed = check_expressions(inputs[k], *tensors[k].impl(), outcome.sizes);
  for (const ir::Assumption& assumption : assumptions) {
    if (!outcome.failed.empty()) break;
    if (!assumption.predicate.evaluate(outcome.sizes))
      outcome.failed =
          fmt::format("{} ({}{}{})", assumption.predicate.to_string(), assumption.reason,
                      assumption.location.empty() ? "" : " at ", assumption.location.to_string());
  }
  outcome.holds = outcome.failed.empty();
  return outcome;
}

std::vector<std::string> Guards::describe() const {
  std::vector<std::string> lines;
  for (const InputGuard& input : inputs) {
    ir::TensorMeta meta = ir::TensorMeta::of(input.dtype, input.sizes);
    if (!input.row_major) meta.strides = input.strides;
    lines.push_back(fmt::format("{} is {}, {}, on cpu (kind of the input at the trace)", input.name,
                                meta.to_string(), input.row_major ? "row-major" : "strided"));
  }
  for (const ir::Assumption& assumption : assumptions)
    lines.push_back(fmt::format("{} ({}{}{})", assumption.predicate.to_string(), assumption.reason,
                                assumption.location.empty() ? "" : " at ",
                                assumption.location.to_string()));
  return lines;
}

Guards guards_for(std::span<const Tensor> inputs, const Signature& signature) {
  check_declared(signature, inputs);
  Guards guards;
  std::uint32_t next = 0;
  for (const ValueInfo& declared : signature.inputs) {
    for (const SymInt& size : declared.sizes) {
      std::vector<base::Symbol> symbols;
      to_expr(size).collect_symbols(symbols);
      for (const base::Symbol& symbol : symbols) next = std::max(next, symbol.id + 1);
    }
  }
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    const Tensor::Impl& tensor = *inputs[k].impl();
    InputGuard guard{input_name(signature, k), tensor.dtype, tensor.row_major, {}, {}};
    for (std::size_t d = 0; d < tensor.sizes.size(); ++d)
      guard.sizes.push_back(k < signature.inputs.size() ? to_expr(signature.inputs[k].sizes[d])
                                                        : SymExpr::size(next++));
    for (std::size_t d = 0; !tensor.row_major && d < tensor.strides.size(); ++d)
      guard.strides.push_back(SymExpr::size(next++));
    guards.inputs.push_back(std::move(guard));
  }
  return guards;
}

}  // namespace heddle::engine
