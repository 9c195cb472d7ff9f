// Loops that run to find out how many elements their results have.
#pragma once

#include <memory>
#include <vector>

#include "engine/region_run.h"
#include "jit/program.h"

namespace heddle::engine {

/// A while loop with results whose sizes its run tells, which runs whole before they have memory: elements of stacked results lie
/// aside until their number is known, and what is carried until the loop has ended.
class StartedLoop : public StartedRegion, private OutputSource {
 public:
  /// @param condition, body  bound at the sizes that the loop starts with
  /// @param operands         of the loop, good until finish()
  StartedLoop(const jit::NestedCall& call, std::shared_ptr<const BoundSteps> condition,
              std::shared_ptr<const BoundSteps> body, void* const* operands, void* request,
              RegionMachine& machine);
  ~StartedLoop() override;

  /// @return as RegionMachine::run()
  std::int32_t run();
  /// Of all results, when it has run.
  std::vector<Sizes> result_sizes() const;
  /// Copies the results where they belong. Once: it keeps nothing.
  std::int32_t finish(void* const* results, RegionMachine& machine) override;

 private:
  struct Nested;
  struct Stack;
  /// A carried value before an iteration.
  struct Carried {
    Sizes sizes;
    std::size_t bytes = 0;
    void* address = nullptr;
    std::shared_ptr<void> memory{};  ///< null: of an operand
    std::size_t room = 0;            ///< bytes of `memory`
    std::int64_t rows = 0;           ///< of one that is appended to: what `memory` has room for
  };
  using Appended = jit::NestedCall::Appended;
  /// One that is appended to: groups of so many rows of so many bytes.
  struct Rows {
    std::int64_t groups = 1, used = 0;
    std::size_t bytes = 0;
  };
  const Appended* appended_to(std::uint32_t k) const;
  Rows rows_of(const Appended& appended) const;
  static void copy_rows(const Rows& rows, void* to, std::int64_t room_there, const void* from,
                        std::int64_t room_here, RegionMachine& machine);
  std::int64_t have_room(const Appended& appended, std::int64_t wanted);
  void fit(std::size_t region);
  void give_captured(Nested& nested) const;
  void move_in(Carried& value);
  void* make_room(std::uint32_t k, Sizes sizes);
  void* output(std::uint32_t position, const Sizes& sizes) override;
  std::int32_t ask(bool& goes_on);
  std::int32_t iterate();
  void* element(Stack& stack);
  void release();

  const jit::NestedCall& call_;
  RegionMachine& machine_;
  std::vector<void*> operands_;
  std::vector<std::unique_ptr<Nested>> nested_;  ///< condition, body
  std::vector<Carried> now_, next_;
  std::shared_ptr<void> answer_;  ///< of the condition
  std::vector<Stack> stacks_;
  std::int64_t iterations_ = 0;
};

}  // namespace heddle::engine
