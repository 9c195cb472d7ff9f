// Parameters by name, and what stands for them since they were updated.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "heddle/tensor.h"
#include "ir/graph.h"

namespace heddle::engine {

/// The parameters of one engine. An original is the tensor that the callable captures, at each of its traces;
/// it is known by its handle. Threads: any.
class ParameterTable {
 public:
  struct Entry {
    std::string name;
    Tensor original;
    Tensor value;  ///< the original until it is replaced
    bool is_label = false;
  };

  /// Makes `original` known under `name`, or one like it that is free; nothing when it is known already.
  /// `is_label`: traces shall call it that too.
  void add(const Tensor& original, std::string_view name, bool is_label = false);
  /// What stands for `original`; itself when it was not replaced.
  Tensor value_of(const Tensor& original) const;
  /// What traces call it; empty for no matter what.
  std::string label_of(const Tensor& original) const;
  /// Its name; empty when it is not known.
  std::string name_of(const Tensor& original) const;
  /// @throws ArgumentError naming the closest known one.
  Tensor original(std::string_view name) const;
  void replace(const Tensor& original, Tensor value);
  /// In the order in which they became known.
  std::vector<Entry> entries() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
  std::unordered_map<const void*, std::size_t> by_handle_;
  std::map<std::string, std::size_t, std::less<>> by_name_;
};

/// The same graph with other bytes for some of its parameters, which keep their types.
ir::Graph with_parameters(const ir::Graph& graph,
                          const std::map<ir::Value, ir::LiteralPtr>& values);

}  // namespace heddle::engine
