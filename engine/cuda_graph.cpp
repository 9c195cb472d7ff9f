#include "engine/cuda_graph.h"

#include <algorithm>
#include <functional>

#include "engine/custom_step.h"
#include "heddle/custom_op.h"
#include "heddle/error.h"
#include "jit/cuda/compile.h"

namespace heddle::engine {

using device::CopyKind;
using ir::StepId;

GraphPlan plan_graphs(const scheduler::CapturePlan& capture, const scheduler::StreamPlan& streams) {
  GraphPlan plan;
  StepId next = 0;
  std::vector<StepId> last(streams.streams, ir::kNone);
  for (const scheduler::Partition& partition : capture.partitions) {
    GraphSegment& segment = plan.emplace_back();
    segment.first = next;
    segment.reason = partition.reason;
    segment.inputs = partition.inputs;
    segment.outputs = partition.outputs;
    segment.sizes = partition.symbols;
    for (std::size_t k = 0; k < partition.steps.size(); ++k, ++next) {
      std::vector<std::uint32_t>& after = segment.after.emplace_back();
      const auto add = [&](StepId from) {
        if (from != ir::kNone && from >= segment.first) after.push_back(from - segment.first);
      };
      StepId& before = last[streams.stream_of[next]];
      add(before);
      for (const StepId from : streams.waits_for[next]) add(from);
      before = next;
    }
    segment.captured = partition.captured;
  }
  for (const scheduler::IndexMap& map : capture.maps) {
    if (!plan[map.partition].captured) continue;
    plan[map.partition].arguments = map.inputs;
    plan[map.partition].results = map.outputs;
  }
  return plan;
}

void collect_arguments(const BoundSteps& plan, const scheduler::BoundStep& step, std::size_t number,
                       void** status, void** counters, std::vector<void*>& arguments) {
  const CudaLaunch& launch = plan.cuda[number];
  const bool scratch = launch.kernel->source().takes_scratch();
  const std::size_t buffers = plan.table_end(number) - plan.table_start[number] - (scratch ? 1 : 0);
  arguments.clear();
  for (std::size_t k = 0; k < buffers; ++k)
    arguments.push_back(const_cast<void**>(step.buffers + k));
  for (std::size_t k = 0; k < launch.sizes; ++k)
    arguments.push_back(const_cast<std::int64_t*>(step.sizes + k));
  if (scratch) arguments.push_back(const_cast<void**>(step.buffers + buffers));
  if (launch.kernel->source().takes_counters()) arguments.push_back(counters);
  arguments.push_back(status);
}

namespace {

/// The shape of a launch; of one that has nothing to do, which has to have a block, of its node.
device::LaunchShape shape_of(const CudaLaunch& launch) {
  const jit::cuda::CudaSource& source = launch.kernel->source(launch.variant);
  return {.blocks = std::max(1u, launch.blocks),
          .threads = source.block_threads,
          .dynamic_shared_bytes = static_cast<std::uint32_t>(source.dynamic_shared_bytes)};
}

constexpr std::size_t kMostReduced = 4096;

}  // namespace

SegmentGraph::SegmentGraph(CudaRuntime& runtime, const GraphSegment& segment,
                           const GraphRequest& request, bool copies_in, bool copies_out,
                           GraphCounters& counters)
    : runtime_(runtime),
      segment_(segment),
      copies_in_(copies_in),
      copies_out_(copies_out),
      counters_(counters),
      graph_(runtime.device().make_graph()) {
  build(request);
  done_before_ = {};
  graph_->instantiate();
  counters_.made.fetch_add(1, std::memory_order_relaxed);
  for (const LaunchNode& launch : launches_)
    if (!launch.enabled) graph_->set_enabled(launch.node, false);
}

void SegmentGraph::build(const GraphRequest& request) {
  // Steps are added in order, so a copy comes before the first step that needs it.
  std::vector<Nodes> after(segment_.after.size());
  if (copies_in_) {
    for (const GraphCopy& copy : request.copies_in) {
      in_.push_back(add_copy(copy, CopyKind::HostToDevice, {}));
      for (const StepId step : copy.steps)
        if (step < segment_.end()) after[step - segment_.first].push_back(in_.back().node);
    }
  }
  for (std::uint32_t k = 0; k < segment_.after.size(); ++k) {
    for (const std::uint32_t from : segment_.after[k]) after[k].push_back(launches_[from].node);
    add_step(request, k, std::move(after[k]));
  }
  if (!copies_out_) return;
  for (const GraphCopy& copy : request.copies_out)
    out_.push_back(add_copy(copy, CopyKind::DeviceToHost, nodes_of(copy.steps)));
}

SegmentGraph::Nodes SegmentGraph::nodes_of(std::span<const StepId> steps) const {
  Nodes nodes;
  for (const StepId step : steps)
    if (step >= segment_.first) nodes.push_back(launches_[step - segment_.first].node);
  return nodes;
}

/// Of a custom op: the addresses of its buffers, and which call it is, sizes and attributes included.
void SegmentGraph::collect(const GraphRequest& request, std::uint32_t k) {
  const std::size_t number = number_of(request, k);
  const scheduler::BoundStep& step = request.steps[number];
  words_.clear();
  if (const auto* custom = request.plan.custom[number].get()) {
    words_.push_back(custom->id());
    const std::size_t buffers = request.plan.table_end(number) - request.plan.table_start[number];
    for (std::size_t b = 0; b < buffers; ++b)
      words_.push_back(reinterpret_cast<std::uintptr_t>(step.buffers[b]));
    return;
  }
  const std::uint32_t stream = request.plan.streams->stream_of[segment_.first + k];
  collect_arguments(request.plan, step, number, request.status, &request.counters[stream],
                    arguments_);
  for (const void* argument : arguments_)
    words_.push_back(*static_cast<const std::uint64_t*>(argument));
}

void SegmentGraph::add_step(const GraphRequest& request, std::uint32_t k, Nodes after) {
  const std::size_t number = number_of(request, k);
  const CudaLaunch& launch = request.plan.cuda[number];
  const bool is_custom = request.plan.custom[number] != nullptr;
  collect(request, k);
  const Nodes before = reduced(std::move(after));
  const bool is_queued = is_custom || launch.library != nullptr;
  const device::Graph::Node node = is_queued
                                       ? add_queued(request, k, before)
                                       : graph_->add_launch(launch.kernel->handle(launch.variant),
                                                            shape_of(launch), arguments_, before);
  launches_.push_back(
      {node, launch.variant, is_custom || !launch.is_empty(), launch.blocks, is_queued, words_});
}

device::Graph::Queue SegmentGraph::queue_of(const GraphRequest& request, std::uint32_t k) {
  const std::size_t number = number_of(request, k);
  if (request.plan.custom[number] != nullptr)
    return [this, &step = request.steps[number]](device::Stream& stream) {
      queue_custom(step, runtime_, stream, custom_tensors_);
    };
  return [this, &launch = request.plan.cuda[number]](device::Stream& stream) {
    launch.kernel->launch(runtime_.device(), launch.variant, launch.blocks, launch.library.get(),
                          arguments_, stream);
  };
}

namespace {

/// Calls `capture`, and tells of a device that refuses to capture what a custom op queued as an error of the op. Null: of
/// a library, whose errors stay what they are.
template <typename F>
auto capture_of(const jit::BoundCustomCall* custom, F&& capture) {
  try {
    return capture();
  } catch (const DeviceLost&) {
    throw;
  } catch (const DeviceError& error) {
    if (custom == nullptr) throw;
    throw CustomOpError({.what = custom->call().op->schema.name + ": its work cannot be captured",
                         .where = custom->call().node,
                         .expected =
                             "launches, copies and fills on the stream that `cuda` gets, or an op "
                             "that is not flagged capturable",
                         .got = error.what()});
  }
}

}  // namespace

device::Graph::Node SegmentGraph::add_queued(const GraphRequest& request, std::uint32_t k,
                                             const Nodes& before) {
  return capture_of(request.plan.custom[number_of(request, k)].get(),
                    [&] { return graph_->add_queued(queue_of(request, k), before); });
}

bool SegmentGraph::set_queued(const GraphRequest& request, std::uint32_t k) {
  return capture_of(request.plan.custom[number_of(request, k)].get(),
                    [&] { return graph_->set_queued(launches_[k].node, queue_of(request, k)); });
}

SegmentGraph::CopyNode SegmentGraph::add_copy(const GraphCopy& copy, CopyKind kind,
                                              const Nodes& after) {
  return {graph_->add_copy(copy.to, copy.from, copy.bytes, kind, reduced(after)), copy.to,
          copy.from, copy.bytes};
}

/// What of `after` others in it do not imply, and notes what the next node comes after. Of more nodes than kMostReduced,
/// since these notes grow with the square: each once.
SegmentGraph::Nodes SegmentGraph::reduced(Nodes after) {
  std::ranges::sort(after, std::greater<>());
  if (done_before_.size() >= kMostReduced) {
    after.erase(std::unique(after.begin(), after.end()), after.end());
    return after;
  }
  Nodes kept;
  std::vector<bool>& done = done_before_.emplace_back(done_before_.size(), false);
  for (const device::Graph::Node node : after) {
    if (done[node]) continue;
    kept.push_back(node);
    done[node] = true;
    const std::vector<bool>& before = done_before_[node];
    for (std::size_t k = 0; k < before.size(); ++k) done[k] = done[k] || before[k];
  }
  return kept;
}

bool SegmentGraph::update(const GraphRequest& request) {
  for (std::uint32_t k = 0; k < launches_.size(); ++k)
    if (!update(request, k)) return false;
  for (std::size_t k = 0; k < in_.size(); ++k)
    update(in_[k], request.copies_in[k], CopyKind::HostToDevice);
  for (std::size_t k = 0; k < out_.size(); ++k)
    update(out_[k], request.copies_out[k], CopyKind::DeviceToHost);
  return true;
}

bool SegmentGraph::update(const GraphRequest& request, std::uint32_t k) {
  LaunchNode& node = launches_[k];
  const std::size_t number = number_of(request, k);
  const CudaLaunch& launch = request.plan.cuda[number];
  const bool is_custom = request.plan.custom[number] != nullptr;
  if (node.is_queued != (is_custom || launch.library != nullptr)) return false;
  const bool enabled = is_custom || !launch.is_empty();
  if (!enabled && !node.enabled) return true;
  if (enabled) {
    collect(request, k);
    if (launch.variant != node.variant || launch.blocks != node.blocks || words_ != node.words) {
      if (node.is_queued) {
        if (!set_queued(request, k)) return false;
      } else {
        graph_->set_launch(node.node, launch.kernel->handle(launch.variant), shape_of(launch),
                           arguments_);
      }
      node.variant = launch.variant;
      node.blocks = launch.blocks;
      node.words.swap(words_);
      counters_.updates.fetch_add(1, std::memory_order_relaxed);
    }
  }
  if (enabled != node.enabled) graph_->set_enabled(node.node, enabled);
  node.enabled = enabled;
  return true;
}

void SegmentGraph::update(CopyNode& node, const GraphCopy& copy, CopyKind kind) {
  if (node.to == copy.to && node.from == copy.from && node.bytes == copy.bytes) return;
  graph_->set_copy(node.node, copy.to, copy.from, copy.bytes, kind);
  node = {node.node, copy.to, copy.from, copy.bytes};
  counters_.updates.fetch_add(1, std::memory_order_relaxed);
}

void SegmentGraph::launch(device::Stream& stream) {
  graph_->launch(stream);
  counters_.launches.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace heddle::engine
