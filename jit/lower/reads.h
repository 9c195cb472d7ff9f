// What each node that will be computed reads, at which index, once cheap producers are inlined.
#pragma once

#include <cstdint>
#include <vector>

#include "jit/lower/live_graph.h"

namespace heddle::jit {

/// One read of a value's element by a node's element.
struct Read {
  Value value;  ///< of a node that is not inlined
  Index index;  ///< in the reader's axes and in temporaries
};

/// A node that is computed by some kernel, and not only inlined into others.
struct NodeReads {
  ir::Dims domain;  ///< sizes the node iterates over: of its output, of a reduction its operand's
  Index axes;       ///< its own index
  base::Facts facts;
  std::vector<Read> reads;
  std::vector<Value> opaque;  ///< read somehow by a recipe or as whole memory
};

/// Decides which nodes are inlined wherever they are read ("inlined") and which are computed once by a
/// kernel ("owned"), and finds what the owned ones read.
///
/// Views are inlined unless they must be in memory, or bring elements side by side that places computed at run time are looked up
/// by, on the CPU. An element node is inlined when it is read at other
/// indices than its own and that costs less than storing it: when each element is read once at most, or
/// when it is cheap. What makes fewer bytes of what a recipe gives is computed with that and stored, on the CPU, wherever it is
/// read: the result in another order would be stored instead. What widens a value in memory by little is made where it is read,
/// if in one place. A copy in another order that each is read many times of is stored there, on the CPU. What is the same in each run is not inlined into what is not: it is computed when a unit is
/// built.
class ReadAnalysis {
 public:
  ReadAnalysis(const LiveGraph& graph);

  bool is_owned(const Node* node) const { return owned_[graph_.position(node)]; }
  /// Whether the node's value is the same in each run: made of parameters and constants only.
  bool is_fixed(const Node* node) const { return fixed_[graph_.position(node)]; }
  const NodeReads& of(const Node* node) const { return reads_[graph_.position(node)]; }
  const LiveGraph& graph() const { return graph_; }
  /// Values that must be in memory whatever is fused: results, operands that recipes or libraries read as
  /// memory. By storage.
  const std::vector<Value>& pinned() const { return pinned_; }

 private:
  struct Reader {
    const Node* node;
    Index index;
  };
  struct Cost {
    int operations = 0;
    int loads = 0;
    bool expensive = false;
  };
  class Recorder;

  void find_fixed();
  void pin(Value value);
  void pin_operands(const Node* node);
  bool pin_bytes(const Node& node);
  void pin_ordered();
  void pin_overwritten();
  void visit(const Node* node);
  bool should_inline(const Node* node) const;
  bool brings_together(const Node* view) const;
  bool looks_up_across(const Node* view, const Reader& reader) const;
  bool leaves_its_region(const Node* node) const;
  bool widens_what_is_kept(const Node* node) const;
  bool keeps_bytes_instead(const Node* node);
  bool narrows_a_nest(const Node* node) const;
  bool is_computed_once(const Node* node) const;
  bool turns_what_many_read(const Node* node) const;
  bool is_joined_and_turned(const Node* node) const;
  bool is_injective(const NodeReads& reads, const Index& index) const;
  bool reads_each_once(const Node* node, const Reader& reader) const;
  void open(const Node* node);
  void record(const Node* reader, const Node* node, const Index& index);
  void add_read(const Node* reader, Value value, const Index& index);
  Cost inlined_cost(const Node* node);

  const LiveGraph& graph_;
  std::vector<bool> owned_;
  std::vector<bool> fixed_;
  std::vector<NodeReads> reads_;
  std::vector<std::vector<Reader>> readers_;  ///< of node k, by owned nodes, through inlined ones
  std::vector<int> opaque_readers_;
  std::vector<Cost> costs_;
  std::vector<Value> pinned_;
  std::vector<bool> is_pinned_;
  std::vector<bool> stands_for_bytes_;  ///< numbers that a nest makes of bytes as it reads them
  std::uint32_t next_temp_ = 0;
};

/// Whether element k in row-major order of the reader reads element k of the value.
bool reads_same(const NodeReads& reader, const Read& read);

}  // namespace heddle::jit
