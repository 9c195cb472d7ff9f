// Nested graphs of small models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/onnx/onnx.pb.h"
#include "tests/onnx/model_builder.h"

namespace heddle::onnx_test {

using Names = std::vector<std::string>;

struct BodyNode {
  std::string op;
  Names inputs;
  std::string output;
  int to = 0;  ///< of a Cast
};

inline void add_graph(NodeProto& node, const std::string& name, const Names& inputs,
                      const std::vector<BodyNode>& steps, const Names& outputs) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::GRAPH);
  GraphProto& graph = *attribute.mutable_g();
  for (const std::string& input : inputs) graph.add_input()->set_name(input);
  for (const BodyNode& step : steps) {
    NodeProto& added = *graph.add_node();
    ModelBuilder::fill(added, step.op, step.inputs, {step.output});
    if (step.op == "Cast") ModelBuilder::set_int(added, "to", step.to);
  }
  for (const std::string& output : outputs) graph.add_output()->set_name(output);
}

inline void add_number(ModelBuilder& model, const std::string& name, std::int64_t number) {
  model.initializer(name, {}, TensorProto::INT64).add_int64_data(number);
}

inline void add_float(ModelBuilder& model, const std::string& name, float number) {
  model.initializer(name, {}, TensorProto::FLOAT).add_float_data(number);
}

inline void add_truth(ModelBuilder& model, const std::string& name, bool truth) {
  model.initializer(name, {}, TensorProto::BOOL).add_int32_data(truth ? 1 : 0);
}

}  // namespace heddle::onnx_test
