// Scopes that mark what is traced inside them.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "heddle/tensor.h"

namespace heddle {

/// Value of an annotation: a flag, number, text, or a map of further ones.
struct AnnotationValue;
using AnnotationMap = std::map<std::string, AnnotationValue, std::less<>>;
struct AnnotationValue {
  AnnotationValue(bool v) : value(v) {}                      // NOLINT: implicit on purpose
  AnnotationValue(int v) : value(std::int64_t{v}) {}         // NOLINT
  AnnotationValue(std::int64_t v) : value(v) {}              // NOLINT
  AnnotationValue(double v) : value(v) {}                    // NOLINT
  AnnotationValue(const char* v) : value(std::string(v)) {}  // NOLINT
  AnnotationValue(std::string v) : value(std::move(v)) {}    // NOLINT
  AnnotationValue(AnnotationMap v)                           // NOLINT
      : value(std::make_shared<const AnnotationMap>(std::move(v))) {}
  std::variant<bool, std::int64_t, double, std::string, std::shared_ptr<const AnnotationMap>> value;
};

/// While alive, every node traced on this thread carries `annotations`, merged over those of enclosing
/// scopes (the inner key wins). Leaving restores exactly what was. Without a trace it does nothing.
class HEDDLE_API Annotate {
 public:
  struct Entry {
    std::string key;
    AnnotationValue value;
  };
  Annotate(std::initializer_list<Entry> entries);
  explicit Annotate(AnnotationMap annotations);
  ~Annotate();
  Annotate(const Annotate&) = delete;
  Annotate& operator=(const Annotate&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Traces `body` so that each node of it runs after the nodes that computed `first`, without reading
/// them and without keeping their memory alive.
template <typename F>
auto after(const std::vector<Tensor>& first, F&& body);

/// Scope behind after().
class HEDDLE_API AfterScope {
 public:
  explicit AfterScope(const std::vector<Tensor>& first);
  ~AfterScope();
  AfterScope(const AfterScope&) = delete;
  AfterScope& operator=(const AfterScope&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

template <typename F>
auto after(const std::vector<Tensor>& first, F&& body) {
  const AfterScope scope(first);
  return body();
}

}  // namespace heddle
