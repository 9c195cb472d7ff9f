// A call with outputs that lie where inputs do (engine/outputs_in_place.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/executable.h"
#include "engine/room.h"
#include "heddle/tensor.h"

namespace heddle::engine {

/// Along which axis the graphs of an engine append to each of the named inputs, as far as that is known.
using AppendAxes = std::vector<std::optional<std::size_t>>;

/// What engines need to know of memory with room.
struct RoomOptions {
  CudaRuntime* runtime = nullptr;  ///< null: on the host
  std::int64_t at_least = 0;       ///< along the axis
};

/// The inputs as such graphs take them, and the outputs as the callable gives them.
class InPlaceCall {
 public:
  /// @param inputs  of the callable
  /// @param owner  not null: of `inputs`, whose handles are the call's until it ends; it then gets back those that are left
  /// @param named  which of them the options name, in ascending order
  InPlaceCall(std::span<const Tensor> inputs, std::vector<Tensor>* owner,
              std::span<const std::size_t> named, const AppendAxes& axes, RoomOptions options);
  ~InPlaceCall();
  InPlaceCall(const InPlaceCall&) = delete;
  InPlaceCall& operator=(const InPlaceCall&) = delete;

  /// Of the graph: the memory of named inputs, and behind the callable's inputs the sizes of what is there.
  std::vector<Tensor>& inputs() { return inputs_; }
  /// Takes the room that `plan` appends to. @return false: there was none, and inputs() lie elsewhere now, where there is
  /// @throws OutOfMemory
  bool take_room(const BoundPlan& plan);
  /// Brings what `plan` updates to the device of the engine.
  void bring_updated(const BoundPlan& plan);
  /// Puts it into memory that nobody else has, there.
  void own_updated(const BoundPlan& plan);
  /// The callable's outputs that lie in inputs; the others are empty handles.
  std::vector<Tensor> places(const BoundPlan& plan) const;
  /// Both, as the callable has them.
  static std::vector<Tensor> joined(std::vector<Tensor> places, std::vector<Tensor> outputs);

  std::uint64_t copies() const { return copies_; }
  std::uint64_t copied_bytes() const { return copied_bytes_; }

 private:
  /// A named input.
  struct Named {
    std::size_t input;
    Tensor given;
    std::shared_ptr<Room> room;  ///< null: memory of the caller's, which stays as it is
    std::shared_ptr<const RoomShare> taken{};  ///< what is there and what is appended
  };

  void add(std::size_t input, std::optional<std::size_t> axis);
  void move_to_room(Named& named, std::size_t axis, std::int64_t length);

  const RoomOptions options_;
  std::vector<Tensor>* const owner_;
  std::vector<Tensor> inputs_;
  std::vector<Named> named_;
  std::vector<const Room*> read_beside_;  ///< those of inputs that are read where they lie
  std::uint64_t copies_ = 0;
  std::uint64_t copied_bytes_ = 0;
};

/// What traces see of the graph's inputs: those of the callable, where named ones have no data.
std::vector<Tensor> callable_inputs(std::span<const Tensor> inputs,
                                    std::span<const std::size_t> named);

}  // namespace heddle::engine
