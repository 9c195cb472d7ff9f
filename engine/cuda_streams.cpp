// Calls whose steps are queued one by one on streams: copies of what lies on the host go beside them.
#include "engine/cuda_context.h"
#include "engine/unit.h"

namespace heddle::engine {

using ir::StepId;

void CudaContext::plan_copies(const BoundPlan& plan) {
  if (copies_plan_id_ == plan.id && copies_on_host_ == on_host_) return;
  copies_plan_id_ = 0;
  copies_ = engine::plan_copies(steps_of_transfers(*plan.unit), *plan.streams, host_tensors_);
  device::Device& device = runtime_->device();
  if (!copies_.in.empty() && copies_.in.back().lane == CopyPlan::kAside && aside_in_ == nullptr)
    aside_in_ = device.make_stream();
  if (copies_.is_aside && aside_out_ == nullptr) aside_out_ = device.make_stream();
  copies_on_host_ = on_host_;
  copies_plan_id_ = plan.id;
}

TensorSteps CudaContext::steps_of_transfers(const Unit& unit) const {
  return steps_of(unit.schedule().record, unit.planner().roots(), host_tensors_);
}

/// Those of copies to the device, then of CopyPlan::marks, then that of the last copy aside.
device::Event& CudaContext::copy_event(std::size_t number) {
  if (copy_events_.size() <= number) copy_events_.resize(number + 1);
  if (copy_events_[number] == nullptr) copy_events_[number] = runtime_->device().make_event();
  return *copy_events_[number];
}

void CudaContext::begin_streams() {
  const scheduler::StreamPlan& streams = *frame_.plan().streams;
  device::Event& begin = *events_.back();
  const bool follows = must_follow_ && streams.streams > 1;
  if (follows) streams_[0]->record(begin);
  for (std::size_t k = 0; k < copies_.in.size(); ++k) {
    const CopyPlan::In& copy = copies_.in[k];
    device::Stream& stream = copy.lane == CopyPlan::kAside ? *aside_in_ : *streams_[copy.lane];
    bring_in(transfers_[copy.tensor], stream);
    if (copy.records) stream.record(copy_event(k));
  }
  for (std::uint32_t k = 1; follows && k < streams.streams; ++k) streams_[k]->wait(begin);
}

/// Every step on its stream, between the events that its plan asks for, and each copy from the device when that is
/// written. What a phase waits for is brought on the stream of its first step, behind what that waits for.
bool CudaContext::queue_steps() {
  const scheduler::StreamPlan& streams = *frame_.plan().streams;
  auto wait = copies_.waits.begin();
  auto out = copies_.out.begin();
  auto mark = copies_.marks.begin();
  const auto mark_event = [&](std::vector<StepId>::const_iterator of) -> device::Event& {
    return copy_event(copies_.in.size() + static_cast<std::size_t>(of - copies_.marks.begin()));
  };
  const auto event_after = [&](StepId step) -> device::Event& {
    if (streams.records[step]) return *events_[event_of_[step]];
    return mark_event(std::ranges::lower_bound(copies_.marks, step));
  };
  for (StepId step = 0; step < streams.stream_of.size(); ++step) {
    stream_ = streams_[streams.stream_of[step]].get();
    for (const StepId from : streams.waits_for[step]) stream_->wait(*events_[event_of_[from]]);
    for (; wait != copies_.waits.end() && wait->step == step; ++wait)
      stream_->wait(copy_event(wait->copy));
    if (!reach(step)) return false;
    if (run_step(*phase_, step - phase_->plan().first_step) != 0) return false;
    const auto last = std::find_if(out, copies_.out.end(),
                                   [&](const CopyPlan::Out& copy) { return copy.step != step; });
    for (auto copy = out; copy != last; ++copy)
      if (!copy->aside) bring_out(transfers_[copy->tensor], *stream_);
    if (streams.records[step]) stream_->record(*events_[event_of_[step]]);
    if (mark != copies_.marks.end() && *mark == step) stream_->record(mark_event(mark++));
    for (; out != last; ++out) {
      if (!out->aside) continue;
      for (const StepId from : out->after) aside_out_->wait(event_after(from));
      bring_out(transfers_[out->tensor], *aside_out_);
    }
  }
  return true;
}

/// Stream 0 ends after all.
void CudaContext::end_streams() {
  const scheduler::StreamPlan& streams = *frame_.plan().streams;
  for (const StepId end : streams.joins) streams_[0]->wait(*events_[event_of_[end]]);
  for (const std::uint32_t tensor : copies_.at_end) bring_out(transfers_[tensor], *streams_[0]);
  if (!copies_.is_aside) return;
  device::Event& end = copy_event(copies_.in.size() + copies_.marks.size());
  aside_out_->record(end);
  streams_[0]->wait(end);
}

bool CudaContext::queue_streams(const BoundPlan& plan) {
  plan_copies(plan);
  begin_streams();
  const bool all = queue_steps();
  if (all) {
    end_streams();
    return true;
  }
  return bring_out_after_error();
}

/// What inputs and outputs have become until then, when nothing is under way any more. @return false
bool CudaContext::bring_out_after_error() {
  for (const auto& stream : streams_) stream->synchronize();
  for (device::Stream* stream : {aside_in_.get(), aside_out_.get()})
    if (stream != nullptr) stream->synchronize();
  bring_out();
  return false;
}

}  // namespace heddle::engine
