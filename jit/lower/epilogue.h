// What a library call does on its result.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "jit/lower/reads.h"
#include "jit/program.h"

namespace heddle::jit {

/// An operation of an epilogue: the nodes that it stands for, the last of which has its value.
struct EpilogueStep {
  EpilogueOp op;
  std::vector<const Node*> nodes;
  Value operand;  ///< of Scale, Shift and Add
};

/// Whether the library call of `node` takes operations on its result.
bool takes_epilogue(const Node& node);

/// Finds pointwise nodes that library calls may compute.
class EpilogueFinder {
 public:
  explicit EpilogueFinder(const ReadAnalysis& reads);

  /// The longest chain after `root`: scale and shift by channel, an added tensor, numbers, clamps and gates.
  ///
  ///   %1 = conv(%0, %w) {channels_last = true, …}     [n, h, w, c]
  ///   %2 = mul(%1, %scale)                            [c]
  ///   %3 = add(%2, %other)                            [n, h, w, c]
  ///   %4 = relu(%3)
  ///
  /// It ends before a value that has another reader or is wanted in memory, before a node of another region or one
  /// that is not to be fused, and where an order edge begins or ends. Each prefix of it is one too.
  std::vector<EpilogueStep> find(const Node& root) const;

 private:
  using Step = std::optional<EpilogueStep>;

  void find_readers(const Node* node);
  bool may_follow(const Node& root, const Node& node) const;
  const std::vector<const Node*>& readers_of(const Node& node) const;
  const Node* only_reader(const Node& node) const;
  Step next(const Node& node) const;
  Step unary(const Node& node, const Node& reader) const;
  Step binary(const Node& node, const Node& reader) const;
  Step gate(const Node& node) const;
  Step with_tensor(const Node& reader, Value other) const;
  Value behind_views(Value value) const;
  bool shows(Value operand, const Node& node, const Node& reader) const;
  Value other_operand(const Node& reader, const Node& node) const;
  std::optional<float> number(Value value) const;
  bool take_bounds(const Node& clamp, EpilogueOp& op) const;
  std::optional<Read> read_of(const Node& reader, Value other) const;

  const ReadAnalysis& reads_;
  const LiveGraph& graph_;
  std::map<const Node*, std::vector<const Node*>> readers_;  ///< owned ones, in graph order
  std::set<const Node*> wanted_;                             ///< in memory
  std::set<const Node*> ordered_;                            ///< order edges begin or end there
};

}  // namespace heddle::jit
