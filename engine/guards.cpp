#include "engine/guards.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

#include "base/solve.h"
#include "engine/tensor_impl.h"
#include "heddle/error.h"

namespace heddle::engine {

using base::SymbolValues;
using base::SymExpr;

namespace {

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
  const bool staged = guard.device.is_cuda() && tensor.device.kind() == Device::Kind::Cpu;
  if (tensor.device != guard.device && !staged)
    return fmt::format("input {}: device is {}, not {}", guard.name, tensor.device.to_string(),
                       guard.device.to_string());
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

/// Binds what only sizes declared as expressions tell: s0 = 3 from 2*s0+1 = 7.
void solve_expressions(std::span<const InputGuard> guards, std::span<const Tensor> tensors,
                       SymbolValues& sizes) {
  for (bool more = true; more;) {
    more = false;
    for (std::size_t k = 0; k < guards.size(); ++k)
      for (std::size_t d = 0; d < guards[k].sizes.size(); ++d) {
        if (guards[k].sizes[d].is_constant() || guards[k].sizes[d].is_symbol()) continue;
        const auto solved = base::solve(guards[k].sizes[d], tensors[k].impl()->sizes[d], sizes);
        if (solved) more = sizes.insert(*solved).second || more;
      }
  }
}

/// Sizes declared as expressions (2*s0+1) hold for the bound symbols.
std::string check_expressions(const InputGuard& guard, const Tensor::Impl& tensor,
                              const SymbolValues& sizes) {
  for (std::size_t k = 0; k < guard.sizes.size(); ++k) {
    const SymExpr& size = guard.sizes[k];
    if (size.is_constant() || size.is_symbol()) continue;
    std::vector<base::Symbol> symbols;
    size.collect_symbols(symbols);
    const bool known =
        std::ranges::all_of(symbols, [&](const auto& symbol) { return sizes.contains(symbol); });
    if (!known || size.evaluate(sizes) != tensor.sizes[k])
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

std::string text_of(const ir::Assumption& assumption) {
  return fmt::format("{} ({}{}{})", assumption.predicate.to_string(), assumption.reason,
                     assumption.location.empty() ? "" : " at ", assumption.location.to_string());
}

/// "s0 = 5, s1 = 2": the sizes that a predicate speaks of.
std::string values_in(const base::Predicate& predicate, const SymbolValues& sizes) {
  std::vector<base::Symbol> symbols;
  predicate.left.collect_symbols(symbols);
  predicate.right.collect_symbols(symbols);
  std::sort(symbols.begin(), symbols.end());
  symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
  std::vector<std::string> texts;
  for (const base::Symbol& symbol : symbols)
    texts.push_back(fmt::format("{} = {}", symbol.to_string(), sizes.at(symbol)));
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// Guards on the numbers of one input: sizes that are fixed, computed or another input's.
void describe_numbers(const InputGuard& input, const char* what, const ir::Dims& numbers,
                      std::map<base::Symbol, std::string>& seen, std::vector<std::string>& lines) {
  for (std::size_t k = 0; k < numbers.size(); ++k) {
    const SymExpr& number = numbers[k];
    const std::string here = fmt::format("{} {} of {}", what, k, input.name);
    if (number.is_constant()) {
      lines.push_back(fmt::format("{} is {} (fixed by the model)", here, number.to_string()));
    } else if (!number.is_symbol()) {
      lines.push_back(fmt::format("{} is {} (declared by the model)", here, number.to_string()));
    } else if (const auto [at, first] = seen.emplace(number.symbol(), here); !first) {
      lines.push_back(fmt::format("{} is {} (declared by the model to equal {})", here,
                                  number.to_string(), at->second));
    }
  }
}

/// Whether two different indices of `tensor` may reach the same byte. Exact where strides are those of
/// a permuted dense tensor with gaps; says yes where it cannot tell.
bool overlaps_itself(const Tensor::Impl& tensor) {
  if (tensor.row_major || tensor.count <= 1) return false;
  std::vector<std::pair<std::int64_t, std::int64_t>> dims;
  for (std::size_t d = 0; d < tensor.sizes.size(); ++d) {
    if (tensor.sizes[d] > 1) dims.emplace_back(tensor.strides[d], tensor.sizes[d]);
  }
  std::sort(dims.begin(), dims.end());
  std::int64_t reach = 0;
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

/// Whether `range` shares a byte with one of `sorted`, which share none.
bool lies_in(const MemoryRange& range, const std::vector<MemoryRange>& sorted) {
  if (range.first == range.second) return false;
  const auto after = std::ranges::lower_bound(sorted, range.second, {}, &MemoryRange::first);
  return after != sorted.begin() && std::prev(after)->second > range.first;
}

/// Whether bytes of an input that may be overwritten are another one's too. Sorted by where they begin, it is enough to know how
/// far those before one reach.
bool any_shared(std::span<const InputGuard> guards, std::span<const Tensor> tensors) {
  struct Range {
    MemoryRange bytes;
    bool overwritten;
  };
  constexpr std::size_t kFew = 64;
  std::array<Range, kFew> few;
  std::vector<Range> many;
  if (tensors.size() > kFew) many.resize(tensors.size());
  const std::span<Range> all = tensors.size() > kFew ? std::span(many) : std::span(few);
  std::size_t count = 0;
  for (std::size_t k = 0; k < tensors.size(); ++k) {
    const MemoryRange bytes = extent_of(*tensors[k].impl());
    if (bytes.first != bytes.second) all[count++] = {bytes, guards[k].is_overwritten()};
  }
  std::ranges::sort(all.first(count), {}, [](const Range& range) { return range.bytes.first; });
  std::uintptr_t reach = 0, overwritten_reach = 0;
  for (const Range& range : all.first(count)) {
    if (range.bytes.first < (range.overwritten ? reach : overwritten_reach)) return true;
    reach = std::max(reach, range.bytes.second);
    if (range.overwritten) overwritten_reach = std::max(overwritten_reach, range.bytes.second);
  }
  return false;
}

}  // namespace

std::string input_name(const Signature& signature, std::size_t k) {
  return k < signature.inputs.size() ? signature.inputs[k].name : fmt::format("input{}", k);
}

MemoryRange extent_of(const Tensor::Impl& tensor) {
  const auto first = reinterpret_cast<std::uintptr_t>(tensor.data());
  if (tensor.count == 0) return {first, first};
  if (tensor.row_major)
    return {first, first + static_cast<std::uintptr_t>(tensor.count) * size_of(tensor.dtype)};
  std::int64_t last = 0;
  for (std::size_t d = 0; d < tensor.sizes.size(); ++d)
    last += (tensor.sizes[d] - 1) * tensor.strides[d];
  return {first, first + (static_cast<std::uintptr_t>(last) + 1) * size_of(tensor.dtype)};
}

void Guards::note_writes(const ir::Graph& graph) {
  for (const ir::Graph::WriteBack& write : graph.write_backs())
    for (std::size_t k = 0; k < inputs.size(); ++k)
      if (graph.inputs()[k] == write.target) inputs[k].written = true;
  exclusive_ = std::ranges::any_of(
      inputs, [](const InputGuard& input) { return input.written || input.donated; });
}

void Guards::note_fixed(std::vector<MemoryRange> ranges) {
  fixed_.clear();
  std::ranges::sort(ranges);
  for (const MemoryRange& range : ranges) {
    if (range.first == range.second) continue;
    if (!fixed_.empty() && range.first < fixed_.back().second)
      fixed_.back().second = std::max(fixed_.back().second, range.second);
    else
      fixed_.push_back(range);
  }
}

void Guards::check_overlap(std::span<const Tensor> tensors) const {
  if (!exclusive_) return;
  const auto why = [&](std::size_t k) {
    return inputs[k].written ? "which the graph writes to" : "which is donated";
  };
  const auto clash = [&](std::size_t k, const std::string& with) {
    throw AliasingError(
        {.what = fmt::format("run: input {}, {}, overlaps {}", inputs[k].name, why(k), with),
         .where = {},
         .expected = "memory of its own",
         .got = {}});
  };
  const bool shares = any_shared(inputs, tensors);
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (!inputs[k].is_overwritten()) continue;
    if (tensors[k].impl()->read_only)
      require_writable(tensors[k], fmt::format("run: input {}, {}", inputs[k].name, why(k)));
    if (inputs[k].written && overlaps_itself(*tensors[k].impl())) clash(k, "itself");
    for (std::size_t other = 0; shares && other < inputs.size(); ++other) {
      if (other != k && overlap(extent_of(*tensors[k].impl()), extent_of(*tensors[other].impl())))
        clash(k, "input " + inputs[other].name);
    }
    if (inputs[k].donated && lies_in(extent_of(*tensors[k].impl()), fixed_))
      clash(k, "a parameter");
  }
}

Guards::Outcome Guards::match(std::span<const Tensor> tensors) const {
  Outcome outcome;
  if (tensors.size() != inputs.size()) {
    outcome.failed = fmt::format("number of inputs is {}, not {}", tensors.size(), inputs.size());
    return outcome;
  }
  for (std::size_t k = 0; k < inputs.size() && outcome.failed.empty(); ++k)
    outcome.failed = check_input(inputs[k], *tensors[k].impl(), outcome.sizes);
  if (outcome.failed.empty()) solve_expressions(inputs, tensors, outcome.sizes);
  for (std::size_t k = 0; k < inputs.size() && outcome.failed.empty(); ++k)
    outcome.failed = check_expressions(inputs[k], *tensors[k].impl(), outcome.sizes);
  for (const ir::Assumption& assumption : assumptions) {
    if (!outcome.failed.empty()) break;
    if (!assumption.predicate.evaluate(outcome.sizes))
      outcome.failed = fmt::format("{}, but {}", text_of(assumption),
                                   values_in(assumption.predicate, outcome.sizes));
  }
  outcome.holds = outcome.failed.empty();
  return outcome;
}

std::vector<std::string> Guards::describe() const {
  std::vector<std::string> lines;
  std::map<base::Symbol, std::string> seen;
  for (const InputGuard& input : inputs) {
    ir::TensorMeta meta = ir::TensorMeta::of(input.dtype, input.sizes);
    if (!input.row_major) meta.strides = input.strides;
    lines.push_back(fmt::format(
        "{} is {}, {}, on {}, at a multiple of {} bytes (what its kernels were compiled for)",
        input.name, meta.to_string(), input.row_major ? "row-major" : "strided",
        input.device.to_string(), size_of(input.dtype)));
    describe_numbers(input, "size", input.sizes, seen, lines);
    describe_numbers(input, "stride", input.strides, seen, lines);
  }
  for (const ir::Assumption& assumption : assumptions) lines.push_back(text_of(assumption));
  for (const InputGuard& input : inputs) {
    if (input.written)
      lines.push_back(
          fmt::format("{} overlaps no other input and not itself (it is written to)", input.name));
  }
  for (const InputGuard& input : inputs) {
    if (input.donated)
      lines.push_back(
          fmt::format("{} overlaps no other input and no parameter (it is donated)", input.name));
  }
  if (!exclusive_) lines.push_back("inputs may overlap (none is written to)");
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
    InputGuard guard;
    guard.name = input_name(signature, k);
    guard.dtype = tensor.dtype;
    guard.row_major = tensor.row_major;
    guard.device = tensor.device;
    guard.donated = k < signature.inputs.size() && signature.inputs[k].donated;
    for (std::size_t d = 0; d < tensor.sizes.size(); ++d)
      guard.sizes.push_back(k < signature.inputs.size() ? to_expr(signature.inputs[k].sizes[d])
                                                        : SymExpr::size(next++));
    for (std::size_t d = 0; !tensor.row_major && d < tensor.strides.size(); ++d)
      guard.strides.push_back(SymExpr::size(next++));
    guards.inputs.push_back(std::move(guard));
  }
  // What is declared may relate sizes: [s0, s0], [2*s0+1].
  if (const Guards::Outcome outcome = guards.match(inputs); !outcome.holds)
    throw ShapeError({.what = "run: inputs",
                      .where = {},
                      .expected = "sizes as the model declares them",
                      .got = outcome.failed});
  return guards;
}

}  // namespace heddle::engine
