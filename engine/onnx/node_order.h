// Nodes in an order in which each follows what it reads.
#pragma once

namespace heddle::onnx_format {
class GraphProto;
}

namespace heddle::onnx {

/// ONNX asks for it, and ONNX Runtime does without: nodes of `graph` and of the graphs within that come before what
/// they read are moved behind it, the others stay in their order. Nodes that read from each other in a circle, or what no
/// node makes, keep their places.
void sort_nodes(onnx_format::GraphProto& graph);

}  // namespace heddle::onnx
