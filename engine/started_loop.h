// Loops that run to find out how many elements their results have.
#pragma once

#include <memory>
#include <vector>

#include "engine/region_run.h"
#include "jit/program.h"

namespace heddle::engine {

/// A while loop with stacked results, which runs whole before its results have memory: elements lie aside until their number is
/// known.
class StartedLoop : public StartedRegion {
 public:
  /// @param condition, body  bound at the sizes of the loop
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
  void* place(std::int64_t iteration, std::uint32_t k) const;
  std::int32_t ask(bool& goes_on);
  std::int32_t iterate();
  void* element(Stack& stack);
  void release();

  const jit::NestedCall& call_;
  RegionMachine& machine_;
  std::vector<void*> operands_;
  std::unique_ptr<Nested> condition_, body_;
  std::vector<std::size_t> carried_bytes_;
  std::shared_ptr<void> places_[2];   ///< of carried values
  std::vector<std::size_t> offsets_;  ///< of each in a place
  std::shared_ptr<void> answer_;      ///< of the condition
  std::vector<Stack> stacks_;
  std::int64_t iterations_ = 0;
};

}  // namespace heddle::engine
