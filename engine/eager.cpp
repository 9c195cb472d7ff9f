// Ops on concrete tensors outside an engine: compiled once by op and attributes, run at once.

#include <fmt/format.h>
#include <map>
#include <mutex>

#include "base/hash.h"
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

}  // namespace

std::vector<Tensor> run_eagerly(std::string_view op, std::span<const Tensor> operands,
                                OpAttrs attrs, const std::source_location& where) {
  std::vector<Tensor> defined;
  for (const Tensor& operand : operands) {
    if (operand.defined()) defined.push_back(operand);
  }
  return engine_for(op, operands, attrs, where)->run(std::span<const Tensor>(defined));
}

}  // namespace heddle::engine
