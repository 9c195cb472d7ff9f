#include "jit/lower/share_numbers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "jit/lower/nest_scalars.h"

namespace heddle::jit {
namespace {

using ir::ScalarOp;
using Range = GivenStmt::Range;

/// Of one call: kernels have a register or two for them.
constexpr std::size_t kMostNumbers = 24;

/// Calls `visit` with each statement of a block, nested ones behind what they are in.
void for_each_stmt(const Block& block, auto&& visit) {
  for (const Stmt& statement : block) {
    visit(statement);
    if (const auto* loop = std::get_if<ForStmt>(&statement.node)) for_each_stmt(*loop->body, visit);
    if (const auto* branch = std::get_if<IfStmt>(&statement.node))
      for_each_stmt(*branch->body, visit);
  }
}

/// Whether the operand of `apply` at `place` is a plain number of its arithmetic.
bool is_of_arithmetic(const ApplyStmt& apply, std::size_t place) {
  switch (apply.op) {
    case ScalarOp::Add:
    case ScalarOp::Sub:
    case ScalarOp::Mul:
      return true;
    case ScalarOp::Div:
      return place == 1 && is_floating(apply.dtype);
    default:
      return false;
  }
}

/// A constant that a call may be given.
struct Number {
  const ConstStmt* constant;
  bool divides;  ///< something is divided by it

  /// As a call is given it.
  std::int64_t given() const {
    if (constant->dtype == DType::F32)
      return std::bit_cast<std::int32_t>(static_cast<float>(constant->number));
    return constant->integer;
  }
  bool is_within(Range range) const;
};

bool Number::is_within(Range range) const {
  const bool real = constant->dtype == DType::F32;
  const double number = real ? constant->number : static_cast<double>(constant->integer);
  const bool whole = number == std::floor(number);
  switch (range) {
    case Range::Unsigned:
      return whole && number >= 0 && number <= 255;
    case Range::Signed:
      return whole && number >= -128 && number <= 127;
    case Range::Scale:
      return real && number >= 0x1p-60 && number <= 0x1p60;
    case Range::Any:
      break;
  }
  return true;
}

/// Those of a nest, in order.
std::vector<Number> numbers_of(const Nest& nest) {
  std::unordered_set<ScalarId> other_uses;
  std::unordered_set<ScalarId> divisors;
  for_each_stmt(nest.body, [&](const Stmt& statement) {
    if (const auto* apply = std::get_if<ApplyStmt>(&statement.node)) {
      for (std::size_t k = 0; k < apply->operands.size(); ++k)
        if (!is_of_arithmetic(*apply, k)) other_uses.insert(apply->operands[k]);
      if (apply->op == ScalarOp::Div) divisors.insert(apply->operands[1]);
      return;
    }
    const auto note = [&](ScalarId id) { other_uses.insert(id); };
    // The visitors take what they may change.
    std::visit([&](auto& node) { visit_uses(node, note); }, const_cast<Stmt&>(statement).node);
    if (const auto* loop = std::get_if<ForStmt>(&statement.node))
      visit_loop_exits(const_cast<ForStmt&>(*loop), note);
  });
  std::vector<Number> found;
  for_each_stmt(nest.body, [&](const Stmt& statement) {
    const auto* constant = std::get_if<ConstStmt>(&statement.node);
    if (constant == nullptr || other_uses.contains(constant->result)) return;
    double number = 0;
    if (constant->dtype == DType::F32) number = static_cast<float>(constant->number);
    if (constant->dtype == DType::I32) number = static_cast<double>(constant->integer);
    if (number != 0 && number != 1 && std::isfinite(number))
      found.push_back({constant, divisors.contains(constant->result)});
  });
  return found;
}

/// Statements in place of some constants of a nest.
using Places = std::map<const ConstStmt*, GivenStmt>;

Block with_places(const Block& block, const Places& places) {
  Block result = block;
  for (std::size_t k = 0; k < block.size(); ++k) {
    if (const auto* constant = std::get_if<ConstStmt>(&block[k].node)) {
      const auto found = places.find(constant);
      if (found != places.end()) result[k].node = found->second;
    } else if (auto* loop = std::get_if<ForStmt>(&result[k].node)) {
      loop->body = std::make_shared<Block>(with_places(*loop->body, places));
    } else if (auto* branch = std::get_if<IfStmt>(&result[k].node)) {
      branch->body = std::make_shared<Block>(with_places(*branch->body, places));
    }
  }
  return result;
}

std::shared_ptr<const Nest> with_places(const Nest& nest, const Places& places,
                                        std::size_t parameters) {
  auto result = std::make_shared<Nest>(nest);
  result->body = with_places(nest.body, places);
  result->size_count += static_cast<std::uint32_t>(parameters);
  return result;
}

/// A kernel, the steps that call it, and its numbers.
struct Member {
  std::size_t kernel;
  std::vector<std::size_t> steps;
  std::vector<Number> numbers;
};

/// What it is without them.
base::Hash128 key_without(const Nest& nest, const std::vector<Number>& numbers) {
  Places places;
  for (const auto& [constant, divides] : numbers)
    places[constant] = {constant->result, constant->dtype, 0, Range::Any};
  return structural_key(*with_places(nest, places, 1));
}

/// Kernels that are alike but for numbers.
class Alike {
 public:
  explicit Alike(std::vector<Member> members) : members_(std::move(members)) {}

  void share(Program& program) const {
    std::vector<std::vector<std::int64_t>> given_numbers;  // by parameter, of each member
    const Nest& first = *program.kernels[members_[0].kernel].nest;
    Places places;
    for (std::size_t k = 0; k < members_[0].numbers.size(); ++k) {
      const std::vector<std::int64_t> numbers = column(k);
      if (std::ranges::all_of(numbers, [&](std::int64_t n) { return n == numbers[0]; })) continue;
      const ConstStmt& constant = *members_[0].numbers[k].constant;
      const auto known = std::ranges::find(given_numbers, numbers);
      const auto parameter = static_cast<std::uint32_t>(known - given_numbers.begin());
      if (known == given_numbers.end()) given_numbers.push_back(numbers);
      places[&constant] = {constant.result, constant.dtype, first.size_count + parameter,
                           range_of(k)};
    }
    if (places.empty() || given_numbers.size() > kMostNumbers) return;
    const auto nest = with_places(first, places, given_numbers.size());
    for (std::size_t m = 0; m < members_.size(); ++m) {
      program.kernels[members_[m].kernel].nest = nest;
      for (const std::size_t step : members_[m].steps)
        for (const auto& numbers : given_numbers)
          program.launches[step].sizes.emplace_back(numbers[m]);
    }
  }

 private:
  std::vector<std::int64_t> column(std::size_t k) const {
    std::vector<std::int64_t> numbers;
    for (const Member& member : members_) numbers.push_back(member.numbers[k].given());
    return numbers;
  }
  /// One that has all.
  Range range_of(std::size_t k) const {
    const auto has_all = [&](Range range) {
      return std::ranges::all_of(members_,
                                 [&](const Member& m) { return m.numbers[k].is_within(range); });
    };
    if (members_[0].numbers[k].divides && has_all(Range::Scale)) return Range::Scale;
    for (const Range range : {Range::Unsigned, Range::Signed, Range::Scale})
      if (has_all(range)) return range;
    return Range::Any;
  }

  std::vector<Member> members_;
};

}  // namespace

void share_numbers(Program& program) {
  std::vector<std::vector<std::size_t>> steps(program.kernels.size());
  for (std::size_t k = 0; k < program.record.steps.size(); ++k)
    steps[program.record.steps[k].kernel].push_back(k);
  // Keys take as long as a text of the nest: only of those that have as much of everything as another.
  using Counts = std::array<std::size_t, 4>;
  std::map<Counts, std::vector<Member>> candidates;
  for (std::size_t k = 0; k < program.kernels.size(); ++k) {
    const Nest* nest = program.kernels[k].nest.get();
    if (nest == nullptr || nest->attention) continue;
    std::vector<Number> numbers = numbers_of(*nest);
    if (numbers.empty()) continue;
    const Counts counts{nest->buffers.size(), nest->size_count, nest->body.size(), numbers.size()};
    candidates[counts].push_back({k, std::move(steps[k]), std::move(numbers)});
  }
  for (auto& [counts, members] : candidates) {
    if (members.size() < 2) continue;
    std::map<const Nest*, base::Hash128> keys;
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::vector<Member>> alike;
    for (Member& member : members) {
      const Nest* nest = program.kernels[member.kernel].nest.get();
      const auto [known, is_new] = keys.try_emplace(nest);
      if (is_new) known->second = key_without(*nest, member.numbers);
      alike[{known->second.high, known->second.low}].push_back(std::move(member));
    }
    for (auto& [key, same] : alike)
      if (same.size() > 1) Alike(std::move(same)).share(program);
  }
}

}  // namespace heddle::jit
