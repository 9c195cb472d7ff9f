#include "heddle/annotate.h"

#include "engine/annotations.h"
#include "engine/trace.h"

namespace heddle {

namespace engine {

ir::Annotation to_ir(const AnnotationValue& value) {
  return std::visit(
      [](const auto& v) -> ir::Annotation {
        if constexpr (requires { v->begin(); })
          return {std::make_shared<const ir::Annotations>(to_ir(*v))};
        else
          return {v};
      },
      value.value);
}

ir::Annotations to_ir(const AnnotationMap& map) {
  ir::Annotations result;
  for (const auto& [key, value] : map) result.emplace(key, to_ir(value));
  return result;
}

AnnotationMap from_ir(const ir::Annotations& map) {
  AnnotationMap result;
  for (const auto& [key, annotation] : map)
    std::visit(
        [&, &key = key](const auto& v) {
          if constexpr (requires { v->begin(); })
            result.emplace(key, from_ir(*v));
          else
            result.emplace(key, v);
        },
        annotation.value);
  return result;
}

}  // namespace engine

namespace {

AnnotationMap map_of(std::initializer_list<Annotate::Entry> entries) {
  AnnotationMap map;
  for (const Annotate::Entry& entry : entries) map.insert_or_assign(entry.key, entry.value);
  return map;
}

}  // namespace

struct Annotate::State {
  std::shared_ptr<engine::Trace> trace;
  ir::Annotations before;
};

Annotate::Annotate(std::initializer_list<Entry> entries) : Annotate(map_of(entries)) {}

Annotate::Annotate(AnnotationMap annotations) {
  engine::Trace* trace = engine::current_trace();
  if (trace == nullptr) return;
  ir::Annotations& current = trace->builder().context.annotations;
  state_ = std::make_unique<State>(State{trace->shared_from_this(), current});
  for (auto& [key, value] : engine::to_ir(annotations)) current.insert_or_assign(key, value);
}

Annotate::~Annotate() {
  if (state_) state_->trace->builder().context.annotations = std::move(state_->before);
}

struct AfterScope::State {
  std::shared_ptr<engine::Trace> trace;
  std::vector<ir::Value> before;
};

AfterScope::AfterScope(const std::vector<Tensor>& first) {
  engine::Trace* trace = engine::current_trace();
  if (trace == nullptr) return;
  std::vector<ir::Value>& current = trace->builder().context.after;
  state_ = std::make_unique<State>(State{trace->shared_from_this(), current});
  for (const Tensor& tensor : first) {
    if (!tensor.is_symbolic()) continue;
    if (const ir::Value value = trace->order_after(tensor)) current.push_back(value);
  }
}

AfterScope::~AfterScope() {
  if (state_) state_->trace->builder().context.after = std::move(state_->before);
}

}  // namespace heddle
