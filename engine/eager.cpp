// Ops on concrete tensors outside an engine: compiled once by op and attributes, run at once.

#include <cctype>
#include <fmt/format.h>
#include <map>
#include <mutex>

#include "base/hash.h"
#include "base/relabel.h"
#include "engine/guards.h"
#include "engine/tensor_impl.h"
#include "engine/trace.h"
#include "heddle/engine.h"

namespace heddle::engine {

namespace {

std::string text_of(const OpAttr& attr) {
  return std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, DType>) {
          return std::string(name_of(v));
        } else if constexpr (std::is_same_v<T, SymInt>) {
          return v.to_string();
        } else if constexpr (std::is_same_v<T, Tensor>) {
          return to_literal(v).checksum().hex();
        } else if constexpr (requires { v.begin(); } && !std::is_same_v<T, std::string>) {
          std::string text = "[";
          for (const auto& element : v) {
            if constexpr (requires { element.is_symbolic(); })
              text += element.to_string() + ",";
            else
              text += fmt::format("{},", element);
          }
          return text + "]";
        } else {
          return fmt::format("{}", v);
        }
      },
      attr);
}

std::string key_of(std::string_view op, std::span<const Tensor> operands, const OpAttrs& attrs) {
  std::string key(op);
  for (const Tensor& operand : operands) key += operand.defined() ? '+' : '-';
  for (const auto& [name, value] : attrs)
    key += fmt::format(" {}#{}={}", name, value.index(), text_of(value));
  return key;
}

/// One engine for each op and attributes seen.
std::shared_ptr<Engine> engine_for(std::string_view op, std::span<const Tensor> operands,
                                   const OpAttrs& attrs, const std::source_location& where) {
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<Engine>> engines;
  const std::scoped_lock lock(mutex);
  std::shared_ptr<Engine>& made = engines[key_of(op, operands, attrs)];
  if (made == nullptr) {
    std::vector<bool> present;
    for (const Tensor& operand : operands) present.push_back(operand.defined());
    TraceFunction trace = [op = std::string(op), attrs, where,
                           present](std::span<const Tensor> inputs) {
      std::vector<Tensor> all;
      std::size_t next = 0;
      for (const bool here : present) all.push_back(here ? inputs[next++] : Tensor());
      return TraceResult{apply(op, all, attrs, where), {}, nullptr};
    };
    made = std::make_shared<Engine>(Engine::FromTrace{}, std::move(trace), EngineOptions{},
                                    Signature{});
  }
  return made;
}

/// The sizes of this call by the names that its trace gives them: "s0".
std::map<std::string, std::int64_t, std::less<>> named_sizes(std::span<const Tensor> operands) {
  std::map<std::string, std::int64_t, std::less<>> numbers;
  const Guards guards = guards_for(operands, {});
  for (std::size_t k = 0; k < operands.size(); ++k)
    for (std::size_t d = 0; d < guards.inputs[k].sizes.size(); ++d)
      numbers.emplace(guards.inputs[k].sizes[d].to_string(), operands[k].sizes()[d]);
  return numbers;
}

/// `text` with numbers in place of sizes: "f32[s0, 4]" becomes "f32[3, 4]".
std::string with_numbers(const std::string& text,
                         const std::map<std::string, std::int64_t, std::less<>>& numbers) {
  const auto in_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
  };
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && in_word(text[end])) ++end;
    if (end == at) {
      result += text[at++];
      continue;
    }
    const std::string_view word = std::string_view(text).substr(at, end - at);
    const auto found = numbers.find(word);
    result += found == numbers.end() ? std::string(word) : std::to_string(found->second);
    at = end;
  }
  return result;
}

/// What an error of the shared engine says of this call: its place and its sizes, where the trace had symbols and the place
/// of the call that was traced.
Error::Parts told_here(const Error& error, std::span<const Tensor> operands,
                       const std::source_location& where) {
  const auto numbers = named_sizes(operands);
  Error::Parts parts = error.parts();
  if (!parts.where.empty()) parts.where = location_of(where).to_string();
  parts.expected = with_numbers(parts.expected, numbers);
  parts.got = with_numbers(parts.got, numbers);
  return parts;
}

}  // namespace

std::vector<Tensor> run_eagerly(std::string_view op, std::span<const Tensor> operands,
                                OpAttrs attrs, const std::source_location& where) {
  std::vector<Tensor> defined;
  for (const Tensor& operand : operands) {
    if (operand.defined()) defined.push_back(operand);
  }
  const std::shared_ptr<Engine> engine = engine_for(op, operands, attrs, where);
  try {
    return engine->run(std::span<const Tensor>(defined));
  } catch (const Error& error) {
    base::rethrow_as(error, told_here(error, defined, where));
    throw;
  }
}

}  // namespace heddle::engine
