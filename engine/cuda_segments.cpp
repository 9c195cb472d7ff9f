// Calls whose steps are queued as graphs: what follows one another on a stream, graphs and steps between them.
#include <algorithm>

#include "engine/cuda_context.h"
#include "engine/unit.h"

namespace heddle::engine {

namespace {

constexpr std::size_t kMostGraphs = 8;  ///< kinds of calls that a context keeps graphs for

}  // namespace

CudaContext::Graphs* CudaContext::graphs_for(const BoundPlan& plan) {
  if (std::ranges::none_of(*plan.graphs, &GraphSegment::captured)) return nullptr;
  std::erase_if(graphs_, [](const Graphs& kept) { return kept.executable->superseded.load(); });
  const auto found = std::ranges::find_if(graphs_, [&](const Graphs& kept) {
    return kept.executable == plan.executable && kept.on_host == on_host_;
  });
  if (found != graphs_.end()) {
    std::rotate(graphs_.begin(), found, found + 1);
    return &graphs_.front();
  }
  if (graphs_.size() == kMostGraphs) graphs_.pop_back();
  graphs_.insert(graphs_.begin(), Graphs{plan.executable, on_host_, {}, {}, 0, {}});
  return nullptr;
}

/// Of the phase whose steps are being queued.
/// @param with_steps  whether the copies name their steps: for graphs that are to be made
GraphRequest CudaContext::graph_request(const SegmentCopies& copies, bool with_steps) {
  const BoundSteps& plan = phase_->plan();
  copies_in_.clear();
  copies_out_.clear();
  TensorSteps steps;
  if (with_steps) steps = steps_of_transfers(*plan.unit);
  for (const std::uint32_t k : copies.in.front()) {
    const Transfer& transfer = transfers_[k];
    copies_in_.push_back({staging_.get() + transfer.offset, pinned_of(transfer), transfer.bytes});
    if (with_steps) copies_in_.back().steps = std::move(steps.users[k]);
  }
  for (const std::uint32_t k : copies.out.back()) {
    const Transfer& transfer = transfers_[k];
    copies_out_.push_back({pinned_of(transfer), staging_.get() + transfer.offset, transfer.bytes});
    if (with_steps) copies_out_.back().steps = std::move(steps.writers[k]);
  }
  return {plan, phase_->steps(), &status_address_, counters_of_, copies_in_, copies_out_};
}

bool CudaContext::queue_segment(const GraphSegment& segment) {
  for (ir::StepId step = segment.first; step < segment.end(); ++step) {
    if (!reach(step)) return false;
    if (run_step(*phase_, step - phase_->plan().first_step) != 0) return false;
  }
  return true;
}

/// Steps that begin a phase are in no graph, so that all steps of a graph are of one phase.
void CudaContext::queue_graph(Graphs& graphs, std::size_t number, bool alike) {
  const GraphPlan& segments = *frame_.plan().graphs;
  std::unique_ptr<SegmentGraph>& graph = graphs.segments[number];
  if (graph != nullptr && !alike && !graph->update(graph_request(graphs.copies, false)))
    graph = nullptr;
  if (graph == nullptr)
    graph = std::make_unique<SegmentGraph>(*runtime_, segments[number],
                                           graph_request(graphs.copies, true), number == 0,
                                           number + 1 == segments.size(), counters_);
  graph->launch(*stream_);
}

/// What steps are given follows from the plan and these addresses, unless later phases have arenas of their own.
bool CudaContext::is_launched_alike(Graphs& graphs) {
  places_.assign({arena_.get(), staging_.get(), pinned_.get(), tile_counters_.get()});
  places_.insert(places_.end(), device_inputs_.begin(), device_inputs_.end());
  places_.insert(places_.end(), device_outputs_.begin(), device_outputs_.end());
  const bool alike = graphs.plan_id == plan_id_ && graphs.places == places_;
  graphs.plan_id = 0;  // until all of them are launched
  if (!alike) graphs.places = places_;
  return alike;
}

/// Brings in what segments after the first are the first to use, beside the steps of those before.
void CudaContext::begin_segments(const SegmentCopies& copies) {
  for (std::size_t k = 1; k < copies.in.size(); ++k) {
    if (copies.in[k].empty()) continue;
    if (aside_in_ == nullptr) aside_in_ = runtime_->device().make_stream();
    for (const std::uint32_t tensor : copies.in[k]) bring_in(transfers_[tensor], *aside_in_);
    aside_in_->record(copy_event(k));
  }
}

/// Brings out what a segment before the last has written, beside those that follow.
void CudaContext::follow_segment(const SegmentCopies& copies, std::size_t number) {
  if (copies.out[number].empty()) return;
  if (aside_out_ == nullptr) aside_out_ = runtime_->device().make_stream();
  device::Event& written = copy_event(copies.in.size() + number);
  stream_->record(written);
  aside_out_->wait(written);
  for (const std::uint32_t tensor : copies.out[number]) bring_out(transfers_[tensor], *aside_out_);
}

/// Segments follow one another on stream 0: graphs, and what stands between them step by step. What the first one uses
/// and the last one writes is copied within its graph, or on stream 0 where it is none.
bool CudaContext::queue_graphs(Graphs& graphs) {
  const GraphPlan& segments = *frame_.plan().graphs;
  if (graphs.segments.empty()) {
    std::vector<ir::StepId> ends;
    for (const GraphSegment& segment : segments) ends.push_back(segment.end());
    graphs.copies =
        plan_segment_copies(steps_of_transfers(*frame_.plan().unit), ends, host_tensors_);
  }
  const SegmentCopies& copies = graphs.copies;
  graphs.segments.resize(segments.size());
  const bool alike = is_launched_alike(graphs);
  stream_ = streams_[0].get();
  begin_segments(copies);
  if (!segments.front().captured)
    for (const std::uint32_t tensor : copies.in.front()) bring_in(transfers_[tensor], *stream_);
  const std::size_t last = segments.size() - 1;
  for (std::size_t k = 0; k <= last; ++k) {
    if (k != 0 && !copies.in[k].empty()) stream_->wait(copy_event(k));
    if (segments[k].captured)
      queue_graph(graphs, k, alike);
    else if (!queue_segment(segments[k]))
      return bring_out_after_error();
    if (k != last) follow_segment(copies, k);
  }
  if (!segments.back().captured)
    for (const std::uint32_t tensor : copies.out.back()) bring_out(transfers_[tensor], *stream_);
  if (copies.is_aside()) {
    device::Event& end = copy_event(2 * segments.size());
    aside_out_->record(end);
    stream_->wait(end);
  }
  if (frame_.io() == nullptr) graphs.plan_id = plan_id_;
  return true;
}

}  // namespace heddle::engine
