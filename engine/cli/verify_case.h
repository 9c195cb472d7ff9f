// One case of the ONNX backend test: a model, inputs and the outputs they must give.
#pragma once

#include <cstdint>
#include <string>

#include "engine/cli/commands.h"

namespace heddle::cli {

/// Steps of the plans that a case ran, by what executes them.
struct StepCounts {
  std::uint64_t jit = 0;
  std::uint64_t library = 0;
  std::uint64_t custom = 0;
  std::uint64_t copy = 0;
  std::uint64_t folded = 0;
  std::uint64_t evaluator = 0;
  void add(const StepCounts& other);
};

struct CaseOutcome {
  enum class Result : std::uint8_t { Pass, Fail, Skip };
  Result result = Result::Pass;
  std::string reason;
  StepCounts steps;
};

struct Tolerance {
  double relative = 1e-3;
  double absolute = 1e-7;
};

std::string name_of(CaseOutcome::Result result);  ///< "PASS", "FAIL", "SKIP"

/// Runs every data set of the case. Never throws: errors are outcomes.
CaseOutcome verify_case(const std::string& folder, const ModelOptions& options,
                        Tolerance tolerance);

/// An outcome as it passes between processes.
std::string to_text(const CaseOutcome& outcome);
CaseOutcome outcome_from_text(const std::string& text);

}  // namespace heddle::cli
