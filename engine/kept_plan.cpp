#include "engine/kept_plan.h"

#include <algorithm>
#include <exception>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>
#include <unordered_map>
#include <variant>

#include "base/file_place.h"
#include "engine/compile_scope.h"
#include "engine/plan_check.h"
#include "ir/analysis/regions.h"
#include "ir/archive.h"
#include "ir/custom_op.h"
#include "ir/op.h"
#include "jit/constant_cache.h"
#include "jit/kernel_cache.h"
#include "jit/program_archive.h"

namespace heddle::engine {

extern const char* const kPlanSources;  // a hash of all that makes plans

namespace {

using base::Like;
using ir::PlanBuffer;

// Where the bytes of a parameter or a constant are.

struct Unread {};  ///< no step reads them any more
/// A literal of the traced graph.
struct FromGraph {
  std::size_t number = 0;
  ir::Sizes sizes;
};
/// A piece of what folded steps made.
struct FromDisk {
  std::size_t piece = 0;
  DType dtype = DType::F32;
  ir::Sizes sizes;
};
using FixedPlace = std::variant<Unread, FromGraph, FromDisk, ir::Literal>;

void fields(auto& /*archive*/, Like<Unread> auto& /*place*/) {}
void fields(auto& archive, Like<FromGraph> auto& place) {
  auto& [number, sizes] = place;
  archive(number, sizes);
}
void fields(auto& archive, Like<FromDisk> auto& place) {
  auto& [piece, dtype, sizes] = place;
  archive(piece, dtype, sizes);
}

/// Bytes of constants that a plan holds itself, at most: weights only where they may be kept at all.
std::size_t most_bytes(const BuildOptions& options) {
  constexpr std::size_t kMostBytes = std::size_t{16} << 20;
  return options.constants == nullptr ? jit::ConstantCache::kLeastBytes : kMostBytes;
}

/// Whether the embedder's code, which no key tells, takes part in what becomes of the graph. `seen`: graphs that need not be looked at.
bool has_given_ops(const ir::Graph& graph, std::set<const ir::Graph*>& seen) {
  return std::ranges::any_of(graph.nodes(), [&](const ir::NodePtr& node) {
    const ir::CustomOp* custom = node->op().custom;
    return (custom != nullptr && custom->is_given) ||
           std::ranges::any_of(ir::regions_of(*node), [&](const ir::GraphRef* nested) {
             return seen.insert(nested->graph.get()).second && has_given_ops(*nested->graph, seen);
           });
  });
}

bool may_keep(const ir::Graph& traced, const BuildOptions& options) {
  const EngineOptions& engine = options.engine;
  const bool is_given_code = engine.mark || engine.on_region_compile || !engine.passes.empty() ||
                             !engine.control_deps.empty() || options.lower != jit::lower;
  std::set<const ir::Graph*> seen;
  return options.keep_plans && options.compiler->disk_cache() != nullptr &&
         options.cuda == nullptr && !is_given_code && engine.dump_dir.empty() &&
         !wants_check(engine) && !has_given_ops(traced, seen);
}

std::string key_of(const ir::Graph& traced, const BuildOptions& options) {
  base::ArchiveWriter graph;
  ir::write_graph(graph, traced, [](const ir::Literal& literal) {
    const ir::Literal elements = literal.contiguous();
    return jit::source_key(elements.identity(), elements.bytes());
  });
  const EngineOptions& engine = options.engine;
  const std::string_view bytes = graph.bytes();
  // Hashes of 192 bits stand for the graph, whose text would be the longer part of a plan.
  return fmt::format(
      "plan of {}\n{}\n{}\nthreads {} fuse {} library {} winograd {} scope {} skip {}\n"
      "graph of {} bytes {} {:x}\n",
      kPlanSources, options.compiler->code_key(), jit::library_version(), options.threads,
      engine.fuse, engine.library, may_use_winograd(), static_cast<int>(engine.scope),
      fmt::join(engine.skip_passes, ","), bytes.size(), base::hash128(bytes).hex(),
      base::hash64(bytes.data(), bytes.size(), 1));
}

/// Buffers that steps and outputs of the program read or write, by their roots.
std::vector<bool> used_buffers(const jit::Program& program) {
  std::vector<bool> used(program.record.buffers.size());
  const std::vector<ir::BufferId> roots = ir::alias_roots(program.record);
  const auto use = [&](ir::BufferId buffer) { used[buffer] = used[roots[buffer]] = true; };
  for (const jit::Launch& launch : program.launches) std::ranges::for_each(launch.buffers, use);
  for (const ir::PlanStep& step : program.record.steps) {
    std::ranges::for_each(step.reads, use);
    std::ranges::for_each(step.writes, use);
  }
  std::ranges::for_each(program.outputs, use);
  for (const auto& [input, source] : program.write_backs) use(source);
  return used;
}

bool is_fixed(const PlanBuffer& buffer) {
  return buffer.role == PlanBuffer::Role::Constant || buffer.role == PlanBuffer::Role::Parameter;
}

/// By buffer; nothing where a plan would hold more than `most` bytes of them.
std::optional<std::vector<FixedPlace>> places_of(const ir::Graph& traced, const Unit& unit,
                                                 std::size_t most) {
  const auto& buffers = unit.program().record.buffers;
  const std::vector<bool> used = used_buffers(unit.program());
  const std::vector<const ir::Literal*> literals = literals_of(traced);
  std::unordered_map<const void*, std::size_t> numbers;
  for (std::size_t k = 0; k < literals.size(); ++k)
    if (literals[k]->is_row_major()) numbers.try_emplace(literals[k]->identity(), k);
  std::unordered_map<ir::BufferId, std::size_t> pieces;
  if (!unit.folded_results().key.empty())
    for (const ir::BufferId buffer : unit.folded_results().buffers)
      pieces.emplace(buffer, pieces.size());
  std::size_t held = 0;
  std::vector<FixedPlace> places(buffers.size());
  for (ir::BufferId b = 0; b < buffers.size(); ++b) {
    if (!is_fixed(buffers[b]) || !used[b]) continue;
    const ir::Literal& literal = unit.fixed()[b];
    const auto piece = pieces.find(b);
    const auto known = numbers.find(literal.identity());
    if (piece != pieces.end()) {
      places[b] = FromDisk{piece->second, literal.dtype(), literal.sizes()};
    } else if (known != numbers.end() && literals[known->second]->dtype() == literal.dtype() &&
               literals[known->second]->bytes() == literal.bytes()) {
      places[b] = FromGraph{known->second, literal.sizes()};
    } else {
      held += literal.bytes();
      places[b] = literal;
    }
  }
  if (held > most) return std::nullopt;
  return places;
}

/// The bytes at a place.
class FixedBytes {
 public:
  FixedBytes(const ir::Graph& traced, std::vector<jit::ConstantCache::Piece> pieces)
      : literals_(literals_of(traced)), is_read_(literals_.size()), pieces_(std::move(pieces)) {}

  ir::Literal operator()(const Unread& /*place*/) { return {}; }
  ir::Literal operator()(const FromGraph& place) {
    const ir::Literal& literal = *literals_.at(place.number);
    is_read_[place.number] = true;
    if (literal.sizes() == place.sizes) return literal.contiguous();
    return literal.view(place.sizes, ir::row_major_strides(place.sizes), 0);
  }
  ir::Literal operator()(const FromDisk& place) {
    const jit::ConstantCache::Piece& piece = pieces_.at(place.piece);
    return {place.dtype, place.sizes, ir::row_major_strides(place.sizes),
            const_cast<void*>(piece.get()), piece};
  }
  ir::Literal operator()(const ir::Literal& literal) { return literal; }

  /// Weights in a file leave memory where they were read for the key alone.
  void give_back_unread() const {
    for (std::size_t k = 0; k < literals_.size(); ++k)
      if (!is_read_[k]) base::give_back_pages(literals_[k]->identity(), literals_[k]->bytes());
  }

 private:
  std::vector<const ir::Literal*> literals_;
  std::vector<bool> is_read_;
  std::vector<jit::ConstantCache::Piece> pieces_;
};

}  // namespace

KeptPlan::KeptPlan(const ir::Graph& traced, const BuildOptions& options)
    : traced_(traced), options_(options) {
  if (may_keep(traced, options)) key_ = key_of(traced, options);
}

std::optional<KeptPlan::Parts> KeptPlan::find() const {
  if (key_.empty()) return std::nullopt;
  const std::optional<std::string> bytes = options_.compiler->disk_cache()->find(key_);
  if (!bytes) return std::nullopt;
  try {
    Parts parts;
    FoldedResults results;
    std::vector<FixedPlace> places;
    base::ArchiveReader archive(*bytes);
    archive(parts.program, parts.folded_steps, results.key, results.bytes, places);
    std::vector<jit::ConstantCache::Piece> pieces;
    if (!results.key.empty()) {
      if (options_.constants == nullptr) return std::nullopt;
      pieces = options_.constants->find(results.key, results.bytes);
      if (pieces.empty()) return std::nullopt;
    }
    FixedBytes bytes_at(traced_, std::move(pieces));
    const auto& buffers = parts.program.record.buffers;
    for (const FixedPlace& place : places) parts.fixed.push_back(std::visit(bytes_at, place));
    bytes_at.give_back_unread();
    if (!archive.at_end() || places.size() != buffers.size()) base::ArchiveReader::fail();
    for (ir::BufferId b = 0; b < buffers.size(); ++b)
      if (buffers[b].role == PlanBuffer::Role::Constant)
        parts.program.constants.at(buffers[b].position) =
            std::make_shared<const ir::Literal>(parts.fixed[b]);
    parts.program.graph = traced_;
    return parts;
  } catch (const std::exception&) {  // no plan, though it has the checksum of one
    return std::nullopt;
  }
}

void KeptPlan::store(const Unit& unit) const {
  if (key_.empty() || !jit::can_archive(unit.program())) return;
  const std::size_t nested = jit::nested_constant_bytes(unit.program());
  const std::size_t most = most_bytes(options_);
  if (nested > most) return;
  const std::optional<std::vector<FixedPlace>> places = places_of(traced_, unit, most - nested);
  if (!places) return;
  const FoldedResults& results = unit.folded_results();
  base::ArchiveWriter archive;
  jit::Program program = unit.program();
  std::ranges::fill(program.constants, nullptr);  // which the places tell
  archive(program, unit.own_folded_steps(), results.key, results.bytes, *places);
  options_.compiler->disk_cache()->store(key_, archive.bytes());
}

}  // namespace heddle::engine
