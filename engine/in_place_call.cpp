#include "engine/in_place_call.h"

#include <algorithm>
#include <utility>

#include "engine/donated_memory.h"
#include "engine/tensor_impl.h"
#include "heddle/error.h"

namespace heddle::engine {

namespace {

/// The sizes of `tensor` and 0: a tensor without elements that tells them.
Tensor sizes_of(const Tensor& tensor) {
  auto impl = std::make_shared<Tensor::Impl>();
  Sizes sizes = tensor.impl()->sizes;
  sizes.push_back(0);
  fill_metadata(*impl, DType::Bool, sizes);
  return Tensor(std::move(impl));
}

/// Half as much again as is needed: elements are copied about twice, however long it gets.
std::int64_t capacity_for(std::int64_t length, std::int64_t at_least) {
  constexpr std::int64_t kGranule = 64;
  const std::int64_t wanted = std::max(at_least, length + length / 2);
  return (wanted + kGranule - 1) / kGranule * kGranule;
}

}  // namespace

InPlaceCall::InPlaceCall(std::span<const Tensor> inputs, std::vector<Tensor>* owner,
                         std::span<const std::size_t> named, const AppendAxes& axes,
                         RoomOptions options)
    : options_(options), owner_(owner) {
  inputs_.reserve(inputs.size() + named.size());
  inputs_.assign(inputs.begin(), inputs.end());
  for (std::size_t n = 0; n < named.size(); ++n) add(named[n], axes[n]);
  for (const Tensor& input : inputs_)
    if (!named.empty() && input.defined() && input.impl()->share != nullptr)
      read_beside_.push_back(input.impl()->share->room().get());
  if (owner_ != nullptr) owner_->assign(owner_->size(), {});
}

void InPlaceCall::add(std::size_t input, std::optional<std::size_t> axis) {
  Named& named = named_.emplace_back(Named{input, inputs_[input], nullptr});
  const std::shared_ptr<Tensor::Impl>& given = named.given.impl();
  if (given == nullptr || given->trace != nullptr) {  // refused when the plan is looked for
    inputs_.emplace_back();
    return;
  }
  inputs_.push_back(sizes_of(named.given));
  const Room* room = given->share == nullptr ? nullptr : given->share->room().get();
  if (room != nullptr && axis == room->axis() && room->begins(*given)) {
    named.room = given->share->room();
    inputs_[input] = named.room->whole();
  } else if (!given->row_major) {
    inputs_[input] = named.given.clone();
  }
}

InPlaceCall::~InPlaceCall() {
  if (owner_ == nullptr) return;
  for (Named& named : named_) inputs_[named.input] = std::move(named.given);
  std::move(inputs_.begin(), inputs_.begin() + static_cast<std::ptrdiff_t>(owner_->size()),
            owner_->begin());
}

void InPlaceCall::move_to_room(Named& named, std::size_t axis, std::int64_t length) {
  const Tensor::Impl& given = *named.given.impl();
  const auto make = [&](std::int64_t capacity) {
    return Room::make(options_.runtime, given.dtype, given.sizes, axis, capacity);
  };
  std::shared_ptr<Room> room;
  try {
    room = make(capacity_for(length, options_.at_least));
  } catch (const OutOfMemory&) {
    room = make(length);  // this call at least
  }
  room->fill(named.given);
  ++copies_;
  copied_bytes_ += static_cast<std::uint64_t>(given.count) * size_of(given.dtype);
  named.room = std::move(room);
  inputs_[named.input] = named.room->whole();
}

bool InPlaceCall::take_room(const BoundPlan& plan) {
  bool all = true;
  const std::vector<Append>& appends = plan.executable->in_place.appends;
  for (std::size_t k = 0; k < appends.size(); ++k) {
    Named& named = named_[appends[k].named];
    const std::int64_t from = named.given.impl()->sizes[appends[k].axis];
    const std::int64_t to = plan.appended[k];
    const bool there = named.room != nullptr && named.room->axis() == appends[k].axis &&
                       std::ranges::find(read_beside_, named.room.get()) == read_beside_.end();
    if (there && named.taken != nullptr && named.taken->length() == to) continue;
    named.taken.reset();
    if (there) named.taken = RoomShare::append(named.room, from, to);
    if (named.taken != nullptr) continue;
    move_to_room(named, appends[k].axis, to);
    named.taken = RoomShare::append(named.room, from, to);
    all = false;
  }
  return all;
}

void InPlaceCall::bring_updated(const BoundPlan& plan) {
  if (options_.runtime == nullptr) return;
  for (const Update& update : plan.executable->in_place.updates) {
    Tensor& input = inputs_[update.input];
    if (!input.device().is_cuda()) input = copy_to_device(input, *options_.runtime);
  }
}

void InPlaceCall::own_updated(const BoundPlan& plan) {
  if (plan.executable->in_place.updates.empty()) return;
  plan.executable->guards().check_overlap(inputs_);  // of what the caller gave, not of copies
  bring_updated(plan);
  for (const Update& update : plan.executable->in_place.updates) {
    Tensor& input = inputs_[update.input];
    if (is_sole_owner(input)) continue;
    const Sizes& sizes = input.impl()->sizes;
    Tensor copy = options_.runtime == nullptr
                      ? make_tensor(input.dtype(), sizes)
                      : make_device_tensor(*options_.runtime, input.dtype(), sizes);
    copy_elements(input, copy);
    input = std::move(copy);
  }
}

std::vector<Tensor> InPlaceCall::places(const BoundPlan& plan) const {
  const OutputsInPlace& in_place = plan.executable->in_place;
  std::vector<Tensor> all(in_place.outputs);
  for (const Append& append : in_place.appends) {
    const Tensor result = tensor_of(named_[append.named].taken);
    for (const std::size_t output : append.outputs) all[output] = result;
  }
  for (const Update& update : in_place.updates)
    for (const std::size_t output : update.outputs) all[output] = inputs_[update.input];
  return all;
}

std::vector<Tensor> InPlaceCall::joined(std::vector<Tensor> places, std::vector<Tensor> outputs) {
  auto next = outputs.begin();
  for (Tensor& place : places)
    if (!place.defined()) place = std::move(*next++);
  return places;
}

std::vector<Tensor> callable_inputs(std::span<const Tensor> inputs,
                                    std::span<const std::size_t> named) {
  const std::size_t count = inputs.size() - named.size();
  std::vector<Tensor> result(inputs.begin(), inputs.begin() + static_cast<std::ptrdiff_t>(count));
  for (std::size_t n = 0; n < named.size(); ++n) {
    const Tensor::Impl& given = *inputs[named[n]].impl();
    Sizes sizes = inputs[count + n].impl()->sizes;
    sizes.pop_back();
    auto impl = std::make_shared<Tensor::Impl>();
    fill_metadata(*impl, given.dtype, sizes);
    impl->device = given.device;
    result[named[n]] = Tensor(std::move(impl));
  }
  return result;
}

}  // namespace heddle::engine
