// What graph handles point to.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "ir/graph.h"

namespace heddle::ir {

struct Graph::Data {
  std::string name;
  std::vector<NodePtr> nodes;
  std::vector<Value> inputs;
  std::vector<std::string> input_labels;
  std::vector<Value> outputs;
  std::vector<std::string> output_labels;
  std::unordered_map<const Node*, LiteralPtr> parameters;
  std::vector<Assumption> assumptions;
  std::vector<WriteBack> write_backs;
  mutable std::once_flag hashed;
  mutable base::Hash128 hash{};  ///< once it has been asked for
  mutable std::once_flag counted;
  mutable std::uint32_t next_unbacked = 0;  ///< likewise
};

}  // namespace heddle::ir
