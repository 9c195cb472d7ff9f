#include "tests/onnx/model_builder.h"

#include <cctype>

#include "engine/onnx/onnx.pb.h"

namespace heddle::onnx_test {

namespace {

void set_type(ValueInfoProto& info, const std::string& name, const std::vector<std::string>& dims,
              int dtype) {
  info.set_name(name);
  auto* tensor = info.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(dtype);
  tensor->mutable_shape();
  for (const std::string& dim : dims) {
    auto* made = tensor->mutable_shape()->add_dim();
    if (dim.empty()) continue;
    if (std::isdigit(static_cast<unsigned char>(dim[0])) != 0)
      made->set_dim_value(std::stoll(dim));
    else
      made->set_dim_param(dim);
  }
}

}  // namespace

ModelBuilder::ModelBuilder() : proto_(std::make_shared<ModelProto>()) {
  proto_->add_opset_import()->set_version(17);
  graph().set_name("test");
}

GraphProto& ModelBuilder::graph() { return *proto_->mutable_graph(); }

ModelBuilder& ModelBuilder::input(const std::string& name, const std::vector<std::string>& dims,
                                  int dtype) {
  set_type(*graph().add_input(), name, dims, dtype);
  return *this;
}

ModelBuilder& ModelBuilder::output(const std::string& name, int dtype) {
  set_type(*graph().add_output(), name, {}, dtype);
  return *this;
}

NodeProto& ModelBuilder::node(const std::string& op, const std::vector<std::string>& inputs,
                              const std::vector<std::string>& outputs, const std::string& domain) {
  NodeProto& node = *graph().add_node();
  fill(node, op, inputs, outputs, domain);
  return node;
}

void ModelBuilder::fill(NodeProto& node, const std::string& op,
                        const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::string& domain) {
  node.set_op_type(op);
  node.set_domain(domain);
  node.set_name("the_" + op);
  for (const std::string& name : inputs) node.add_input(name);
  for (const std::string& name : outputs) node.add_output(name);
}

void ModelBuilder::set_int(NodeProto& node, const std::string& name, std::int64_t value) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::INT);
  attribute.set_i(value);
}

void ModelBuilder::set_ints(NodeProto& node, const std::string& name,
                            const std::vector<std::int64_t>& values) {
  AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::INTS);
  for (const std::int64_t value : values) attribute.add_ints(value);
}

TensorProto& ModelBuilder::initializer(const std::string& name,
                                       const std::vector<std::int64_t>& dims, int dtype) {
  TensorProto& tensor = *graph().add_initializer();
  tensor.set_name(name);
  tensor.set_data_type(dtype);
  for (const std::int64_t dim : dims) tensor.add_dims(dim);
  return tensor;
}

ModelBuilder& ModelBuilder::ints(const std::string& name, const std::vector<std::int64_t>& values) {
  TensorProto& tensor =
      initializer(name, {static_cast<std::int64_t>(values.size())}, TensorProto::INT64);
  for (const std::int64_t value : values) tensor.add_int64_data(value);
  return *this;
}

std::string ModelBuilder::bytes() const { return proto_->SerializeAsString(); }

Engine ModelBuilder::load(const onnx::Constants& constants) const {
  const std::string text = bytes();
  return onnx::load_bytes(text.data(), text.size(), {}, {}, constants);
}

}  // namespace heddle::onnx_test
