#include "jit/cpu/onednn/conv_choice.h"

#include <algorithm>
#include <array>
#include <string>

#include "jit/library_choice.h"

namespace heddle::jit::onednn {
namespace {

/// By Algorithm.
const std::array<std::string, 3> kWays{"direct", "winograd", "small_winograd"};

}  // namespace

std::optional<LibraryChoice> choice_of(const Problem& problem, const LibraryWays& ways) {
  if (!fits_winograd(problem)) return {};
  LibraryChoice choice{.ways = kWays, .sizes = problem.result};
  choice.sizes.push_back(problem.x[1]);
  choice.sizes.insert(choice.sizes.end(), problem.weights.end() - 2, problem.weights.end());
  choice.sizes.push_back(std::min(ways.bytes, LibraryWays::kManyBytes) >> 20);
  const std::optional<std::uint32_t> measured =
      ways.verdicts == nullptr ? std::nullopt : ways.verdicts->find(choice);
  choice.measured = measured.has_value() && !ways.way;
  choice.way = ways.way.value_or(
      measured.value_or(static_cast<std::uint32_t>(algorithm_for(problem, ways.bytes))));
  return choice;
}

}  // namespace heddle::jit::onednn
