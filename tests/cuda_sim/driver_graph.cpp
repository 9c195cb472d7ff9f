// The Driver API's functions for graphs that the engine uses.
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "tests/cuda_sim/entry.h"
#include "tests/cuda_sim/graph.h"
#include "tests/cuda_sim/memory.h"

using namespace heddle::sim;

namespace {

/// CUDA_KERNEL_NODE_PARAMS_v2.
struct KernelParameters {
  void* function;
  unsigned int grid_x, grid_y, grid_z;
  unsigned int block_x, block_y, block_z;
  unsigned int shared_bytes;
  void** arguments;
  void** extra;
  void* kernel;
  void* context;
};

/// CUDA_MEMCPY3D_v2.
struct CopySide {
  std::size_t x, y, z, level;
  int type;  ///< 1: host, 2: device
  void* host;
  void* device;
  void* array;
  void* reserved;
  std::size_t pitch, height;
};
struct CopyParameters {
  CopySide from, to;
  std::size_t bytes, height, depth;
};

constexpr int kHost = 1;
constexpr int kDevice = 2;

int read(const KernelParameters& parameters, Operation& operation) {
  if (parameters.function == nullptr || parameters.extra != nullptr) return kInvalidValue;
  return set_launch(operation, *static_cast<Kernel*>(parameters.function),
                    {parameters.grid_x, parameters.grid_y, parameters.grid_z},
                    {parameters.block_x, parameters.block_y, parameters.block_z},
                    parameters.shared_bytes, parameters.arguments);
}

/// One row between pinned memory and the device's.
int read(const CopyParameters& copy, Operation& operation) {
  const Memory& memory = Memory::instance();
  const auto plain = [&](const CopySide& side) {
    if (side.x != 0 || side.y != 0 || side.z != 0 || side.level != 0 || side.array != nullptr)
      return false;
    if (side.pitch != 0 && (side.pitch < copy.bytes || side.pitch > kMaxPitch)) return false;
    if (side.type == kHost) return memory.holds_pinned(side.host, copy.bytes);
    return side.type == kDevice && memory.holds(side.device, copy.bytes);
  };
  if (copy.bytes == 0 || copy.height != 1 || copy.depth != 1 || !plain(copy.from) ||
      !plain(copy.to) || (copy.from.type == kHost && copy.to.type == kHost))
    return kInvalidValue;
  operation.kind = Operation::Kind::Copy;
  operation.to_device = copy.to.type == kDevice;
  operation.from_device = copy.from.type == kDevice;
  operation.to = operation.to_device ? copy.to.device : copy.to.host;
  operation.from = operation.from_device ? copy.from.device : copy.from.host;
  operation.bytes = copy.bytes;
  return kSuccess;
}

int add_node(void** node, void* handle, void* const* after, std::size_t count,
             Operation operation) {
  Graph* graph = Graphs::instance().find(handle);
  if (graph == nullptr) return kInvalidHandle;
  auto made = std::make_unique<GraphNode>();
  made->operation = std::move(operation);
  for (std::size_t k = 0; k < count; ++k) {
    const std::size_t place = graph->place_of(after[k]);
    if (place == graph->nodes.size()) return kInvalidValue;
    if (Graphs::instance().keep_edge()) made->after.push_back(place);
  }
  *node = made.get();
  graph->nodes.push_back(std::move(made));
  return kSuccess;
}

/// The node of an executable graph; null if there is none or it is of another kind.
GraphNode* node_of(void* exec_handle, const void* node, Operation::Kind kind) {
  GraphExec* exec = Graphs::instance().find_exec(exec_handle);
  if (exec == nullptr) return nullptr;
  const auto place = exec->places.find(node);
  if (place == exec->places.end()) return nullptr;
  GraphNode& found = exec->nodes[place->second];
  return found.operation.kind == kind ? &found : nullptr;
}

template <typename Parameters>
int set_node(void* exec, const void* node, Operation::Kind kind, const Parameters& parameters) {
  GraphNode* found = node_of(exec, node, kind);
  if (found == nullptr) return kInvalidHandle;
  Operation operation;
  if (const int error = read(parameters, operation); error != kSuccess) return error;
  found->operation = std::move(operation);
  return kSuccess;
}

/// What would be touched that is not there, in words.
std::string wild_node(const GraphExec& exec) {
  for (const GraphNode& node : exec.nodes) {
    const Operation& operation = node.operation;
    if (!node.enabled || operation.kind != Operation::Kind::Launch) continue;
    if (const int wild = wild_argument(*operation.kernel, operation.arguments); wild >= 0)
      return operation.kernel->name + ": argument " + std::to_string(wild) +
             " points to no allocation";
  }
  return {};
}

}  // namespace

EXPORT int cuThreadExchangeStreamCaptureMode(int* mode) {
  const Entry entry("cuThreadExchangeStreamCaptureMode");
  if (const int error = entry.after(kSuccess); error != kSuccess) return error;
  if (*mode < 0 || *mode > static_cast<int>(CaptureMode::Relaxed)) return kInvalidValue;
  *mode = static_cast<int>(std::exchange(capture_mode(), static_cast<CaptureMode>(*mode)));
  return kSuccess;
}

EXPORT int cuStreamIsCapturing(void* handle, int* status) {
  const Entry entry("cuStreamIsCapturing");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  const Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  *status = stream->capture == nullptr ? 0 : stream->capture->broken ? 2 : 1;
  return kSuccess;
}

/// Of one stream.
EXPORT int cuStreamBeginCapture_v2(void* handle, int mode) {
  const Entry entry("cuStreamBeginCapture");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  Stream* stream = stream_of(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (stream->capture != nullptr || !stream->queue.empty()) return kInvalidValue;
  stream->capture = std::make_unique<Capture>();
  stream->capture->mode = static_cast<CaptureMode>(mode);
  stream->capture->thread = std::this_thread::get_id();
  return kSuccess;
}

EXPORT int cuStreamEndCapture(void* handle, void** graph) {
  const Entry entry("cuStreamEndCapture");
  Stream* stream = stream_of(handle);
  if (stream == nullptr || stream->capture == nullptr) return kInvalidHandle;
  const std::unique_ptr<Capture> capture = std::move(stream->capture);
  *graph = nullptr;
  if (const int error = entry.in_context(); error != kSuccess) return error;
  if (capture->broken) return kCaptureInvalidated;
  Graph* made = Graphs::instance().make();
  for (Operation& operation : capture->operations) {
    auto node = std::make_unique<GraphNode>();
    if (!made->nodes.empty()) node->after.push_back(made->nodes.size() - 1);
    node->operation = std::move(operation);
    made->nodes.push_back(std::move(node));
  }
  *graph = made;
  return kSuccess;
}

EXPORT int cuGraphCreate(void** graph, unsigned int) {
  const Entry entry("cuGraphCreate");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  *graph = Graphs::instance().make();
  return kSuccess;
}

EXPORT int cuGraphDestroy(void* graph) {
  const Entry entry("cuGraphDestroy");
  return Graphs::instance().destroy(graph) ? entry.after(kSuccess) : kInvalidHandle;
}

EXPORT int cuGraphAddKernelNode_v2(void** node, void* graph, void* const* after, std::size_t count,
                                   const KernelParameters* parameters) {
  const Entry entry("cuGraphAddKernelNode");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  Operation operation;
  if (const int error = read(*parameters, operation); error != kSuccess) return error;
  return add_node(node, graph, after, count, std::move(operation));
}

EXPORT int cuGraphAddMemcpyNode(void** node, void* graph, void* const* after, std::size_t count,
                                const CopyParameters* parameters, void*) {
  const Entry entry("cuGraphAddMemcpyNode");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  Operation operation;
  if (const int error = read(*parameters, operation); error != kSuccess) return error;
  return add_node(node, graph, after, count, std::move(operation));
}

EXPORT int cuGraphAddChildGraphNode(void** node, void* handle, void* const* after,
                                    std::size_t count, void* child_handle) {
  const Entry entry("cuGraphAddChildGraphNode");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  const Graph* child = Graphs::instance().find(child_handle);
  if (child == nullptr || child == handle || child->nodes.empty() || !child->is_chain())
    return kInvalidValue;
  for (std::size_t k = 0; k < child->nodes.size(); ++k) {
    void* before = k == 0 ? nullptr : *node;
    const int error = k == 0 ? add_node(node, handle, after, count, child->nodes[k]->operation)
                             : add_node(node, handle, &before, 1, child->nodes[k]->operation);
    if (error != kSuccess) return error;
  }
  Graphs::instance().find(handle)->nodes.back()->chain = child->nodes.size();
  return kSuccess;
}

EXPORT int cuGraphAddEmptyNode(void** node, void* graph, void* const* after, std::size_t count) {
  const Entry entry("cuGraphAddEmptyNode");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  Operation operation;
  operation.kind = Operation::Kind::Fill;  // of no bytes
  return add_node(node, graph, after, count, std::move(operation));
}

/// Only their number is asked for.
EXPORT int cuGraphGetNodes(void* handle, void** nodes, std::size_t* count) {
  const Entry entry("cuGraphGetNodes");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  const Graph* graph = Graphs::instance().find(handle);
  if (graph == nullptr) return kInvalidHandle;
  if (nodes != nullptr) return kInvalidValue;
  *count = graph->nodes.size();
  return kSuccess;
}

EXPORT int cuGraphInstantiateWithFlags(void** exec, void* handle, unsigned long long) {
  const Entry entry("cuGraphInstantiateWithFlags");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  const Graph* graph = Graphs::instance().find(handle);
  if (graph == nullptr) return kInvalidHandle;
  *exec = Graphs::instance().instantiate(*graph);
  return kSuccess;
}

EXPORT int cuGraphExecDestroy(void* exec) {
  const Entry entry("cuGraphExecDestroy");
  return Graphs::instance().destroy_exec(exec) ? entry.after(kSuccess) : kInvalidHandle;
}

EXPORT int cuGraphExecKernelNodeSetParams_v2(void* exec, void* node,
                                             const KernelParameters* parameters) {
  const Entry entry("cuGraphExecKernelNodeSetParams");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  return set_node(exec, node, Operation::Kind::Launch, *parameters);
}

EXPORT int cuGraphExecMemcpyNodeSetParams(void* exec, void* node, const CopyParameters* parameters,
                                          void*) {
  const Entry entry("cuGraphExecMemcpyNodeSetParams");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  return set_node(exec, node, Operation::Kind::Copy, *parameters);
}

/// The child has to have the nodes that the first one had, kind by kind.
EXPORT int cuGraphExecChildGraphNodeSetParams(void* exec_handle, void* node, void* child_handle) {
  const Entry entry("cuGraphExecChildGraphNodeSetParams");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  GraphExec* exec = Graphs::instance().find_exec(exec_handle);
  const Graph* child = Graphs::instance().find(child_handle);
  if (exec == nullptr || child == nullptr) return kInvalidHandle;
  const auto place = exec->places.find(node);
  if (place == exec->places.end()) return kInvalidHandle;
  const std::size_t count = exec->nodes[place->second].chain;
  if (count == 0) return kInvalidHandle;
  if (child->nodes.size() != count || !child->is_chain()) return kUpdateFailed;
  const auto first = exec->nodes.begin() + static_cast<std::ptrdiff_t>(place->second + 1 - count);
  for (std::size_t k = 0; k < count; ++k)
    if (child->nodes[k]->operation.kind != first[static_cast<std::ptrdiff_t>(k)].operation.kind)
      return kUpdateFailed;
  for (std::size_t k = 0; k < count; ++k)
    first[static_cast<std::ptrdiff_t>(k)].operation = child->nodes[k]->operation;
  return kSuccess;
}

EXPORT int cuGraphNodeSetEnabled(void* exec, void* node, unsigned int enabled) {
  const Entry entry("cuGraphNodeSetEnabled");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  GraphNode* found = node_of(exec, node, Operation::Kind::Launch);
  if (found == nullptr) return kInvalidHandle;
  found->enabled = enabled != 0;
  return kSuccess;
}

EXPORT int cuGraphLaunch(void* handle, void* stream_handle) {
  const Entry entry("cuGraphLaunch");
  if (const int error = entry.in_context(); error != kSuccess) return error;
  GraphExec* exec = Graphs::instance().find_exec(handle);
  Stream* stream = stream_of(stream_handle);
  if (exec == nullptr || stream == nullptr) return kInvalidHandle;
  if (const std::string wild = wild_node(*exec); !wild.empty()) return lose(kIllegalAddress, wild);
  Operation operation;
  operation.kind = Operation::Kind::Graph;
  operation.nodes = exec->nodes;
  operation.slots = exec->slots;
  operation.firing = exec->latest;
  operation.end = exec->latest = std::make_shared<Firing>();
  Machine::instance().give(stream, std::move(operation));
  return kSuccess;
}

EXPORT void heddle_cuda_sim_skip_edge(unsigned long n) {
  const std::lock_guard lock(mutex());
  Graphs::instance().skip_edge(n);
}
EXPORT unsigned long heddle_cuda_sim_edges() {
  const std::lock_guard lock(mutex());
  return Graphs::instance().edges();
}
