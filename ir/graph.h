// The graph: functional SSA over tensors, immutable nodes shared between versions.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/hash.h"
#include "base/location.h"
#include "ir/attr.h"
#include "ir/meta.h"
#include "ir/name_table.h"

namespace heddle::ir {

struct OpDef;
class Node;

/// One output of a node. Cheap to copy; valid while a graph that holds the node lives.
struct Value {
  const Node* node = nullptr;
  std::uint32_t index = 0;

  const TensorMeta& meta() const;
  explicit operator bool() const { return node != nullptr; }
  friend auto operator<=>(const Value&, const Value&) = default;
  /// "%name" of a one-output node, "%name.1" otherwise, or the output's own name.
  std::string name() const;

  struct Hash {
    std::size_t operator()(const Value& value) const {
      return base::combine(reinterpret_cast<std::uintptr_t>(value.node), value.index);
    }
  };
};

/// A condition under which the graph is what its callable would have computed, with its reason.
struct Assumption {
  base::Predicate predicate;
  std::string reason;  ///< "broadcast of dimension 1 in add", "branch in user code"
  base::Location location;
};

/// One operation: op, operands, attributes, what its outputs are. Never changes once made.
class Node {
 public:
  const OpDef& op() const { return *op_; }
  std::string_view op_name() const;
  /// An argument of its graph, an input or a param: computed by nothing in it.
  bool is_argument() const;
  /// Operands in schema order; an absent optional operand is a null Value.
  std::span<const Value> inputs() const { return inputs_; }
  const Value& input(std::size_t k) const { return inputs_[k]; }
  std::span<const TensorMeta> outputs() const { return results_->metas; }
  const TensorMeta& output(std::size_t k = 0) const { return results_->metas[k]; }
  Value value(std::uint32_t k = 0) const { return {this, k}; }

  const Attrs& attrs() const { return source_->attrs; }
  bool has(std::string_view name) const { return attrs().find(name) != attrs().end(); }
  /// Attribute `name`; HD_CHECKs presence and kind (the schema guarantees both: defaults are filled in
  /// when the node is made).
  const Attr& attr(std::string_view name) const;
  bool flag(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  const std::string& string(std::string_view name) const;
  DType dtype(std::string_view name) const;
  const std::vector<std::int64_t>& ints(std::string_view name) const;
  const Dims& symints(std::string_view name) const;
  const Literal& literal(std::string_view name) const;
  const Graph& graph(std::string_view name) const;

  const Annotations& annotations() const { return source_->annotations; }
  /// Nodes that must run before this one without feeding it (weak order; prints as after(...)).
  std::span<const Value> after() const { return after_; }
  /// Names of the outputs, one each, unique in the graph, without '%'.
  std::span<const std::string> names() const { return *names_; }
  /// The first name; empty for a node without results.
  const std::string& name() const;
  const base::Location& location() const { return source_->location; }
  /// What inference required of sizes that only the run tells: it holds, or the run is refused (ShapeError).
  std::span<const Assumption> late_requirements() const { return results_->late_requirements; }

 private:
  friend class GraphBuilder;
  /// What does not follow from the operands.
  struct Source {
    Attrs attrs;
    Annotations annotations;
    base::Location location;
  };
  /// What inference made of them.
  struct Results {
    std::vector<TensorMeta> metas;
    std::vector<Assumption> late_requirements;
  };
  using Names = std::vector<std::string>;

  const OpDef* op_ = nullptr;
  std::vector<Value> inputs_;
  std::vector<Value> after_;
  // Nodes that differ in their operands share the rest: passes copy all that lies behind a changed node.
  std::shared_ptr<const Source> source_;
  std::shared_ptr<const Results> results_;
  std::shared_ptr<const Names> names_;
};
using NodePtr = std::shared_ptr<const Node>;

/// How an input is used: given at each call, a captured parameter, or a state that the graph mutates.
enum class InputRole : std::uint8_t { Argument, Parameter };

/// An immutable graph; copies share everything. Nodes are in an order in which operands, and what
/// `after` names, come first. Input and parameter nodes (ops "input", "param") are among them.
class Graph {
 public:
  Graph();

  const std::string& name() const;
  std::span<const NodePtr> nodes() const;  ///< all, in order, inputs and params included
  std::span<const Value> inputs() const;   ///< in signature order: arguments, then parameters
  std::span<const Value> outputs() const;
  /// Display name of input k ("input_ids"); empty if none.
  const std::string& input_label(std::size_t k) const;
  const std::string& output_label(std::size_t k) const;
  /// Parameter values by input node, where known (params without one are supplied at bind time).
  const Literal* parameter(const Node* param) const;
  std::span<const Assumption> assumptions() const;

  /// Input mutations as an epilogue: after everything, `source` is copied into input `target`.
  struct WriteBack {
    Value target;
    Value source;
  };
  std::span<const WriteBack> write_backs() const;

  /// The same graph object (not merely an equal one): what a pass that changed nothing returns.
  bool identical(const Graph& other) const { return data_ == other.data_; }
  /// Structural key: ops, attributes, types, wiring, annotations; not names or locations.
  base::Hash128 structural_hash() const;
  /// Next free number of sN and uN.
  std::uint32_t next_size_symbol() const;
  std::uint32_t next_unbacked_symbol() const;

 private:
  friend class GraphBuilder;
  struct Data;
  std::shared_ptr<const Data> data_;
};

/// Whether `value` is an argument that its caller gives away: nobody reads its memory when the graph has run, so steps
/// may overwrite it after its last reader. Prints as "donated".
bool is_donated(const Value& value);

/// Who decides a comparison of sizes while metadata is inferred.
///
/// The base class proves what it can; what it can't it assumes, and records: decide() takes the hints
/// (sizes seen in this trace) when there are any and says false without; require() assumes true. What is required of sizes
/// that only the run tells is no assumption: it goes to `late`, and from there to the node that is being inferred.
class ShapeEnv {
 public:
  ShapeEnv();
  virtual ~ShapeEnv();
  /// Truth of `predicate` for this graph. Recorded as an assumption unless provable.
  virtual bool decide(const base::Predicate& predicate, std::string_view reason,
                      const base::Location& location);
  /// Makes `predicate` hold. False if it provably cannot (the caller throws its own error).
  virtual bool require(const base::Predicate& predicate, std::string_view reason,
                       const base::Location& location);
  /// What decide() would say, without recording it: as known, else as the hints say, else nothing.
  std::optional<bool> expect(const base::Predicate& predicate) const;
  SymExpr fresh_unbacked() { return SymExpr::unbacked(next_unbacked_++); }

  base::SymbolValues hints;             ///< sizes seen at the trace; may be empty
  base::Facts facts;                    ///< what is known for sure
  std::vector<Assumption> assumptions;  ///< without repeats
  std::vector<Assumption> late;         ///< of the node that is being inferred
  std::uint32_t next_unbacked_ = 0;
};

/// Makes graphs: appends nodes, infers their metadata, then finish(). Also the rewriter of passes.
class GraphBuilder {
 public:
  explicit GraphBuilder(std::string name, std::shared_ptr<ShapeEnv> env = nullptr);

  /// What every node made from here on gets unless told otherwise.
  struct Context {
    Annotations annotations;
    std::vector<Value> after;
    base::Location location;
    std::string name;                ///< wanted name of the next node's outputs; made unique
    std::vector<std::string> names;  ///< the same, one an output; goes before `name`
    std::string
        origin{};  ///< "softmax": nodes without a wanted name are "softmax.exp", by their op
  };
  Context context;

  Value input(TensorMeta meta, std::string name = {}, std::string label = {}, bool donated = false);
  Value parameter(TensorMeta meta, LiteralPtr value, std::string name = {}, std::string label = {});
  /// Appends `op`. Fills attribute defaults, checks the schema, infers outputs.
  /// @throws ShapeError, DTypeError, ArgumentError labelled with the op's constraint.
  const Node* call(const OpDef& op, std::span<const Value> inputs, Attrs attrs = {});
  const Node* call(std::string_view op, std::span<const Value> inputs, Attrs attrs = {});
  const Node* call(std::string_view op, std::initializer_list<Value> inputs, Attrs attrs = {});
  /// First output of call().
  Value emit(std::string_view op, std::initializer_list<Value> inputs, Attrs attrs = {});
  /// A scalar or tensor constant ("const" node).
  Value constant(Literal literal);
  Value scalar(DType dtype, double value);

  /// Puts `node`, made for another graph, into this one as it is (shared). Its operands must be here.
  void share(const NodePtr& node);
  /// `node` with `inputs` in place of its own: shared when they are equal, else made anew with the
  /// same attributes, annotations, order, names and location, and re-inferred (counted in
  /// `reinferred()`).
  const Node* with_inputs(const NodePtr& node, std::span<const Value> inputs,
                          std::span<const Value> after);

  /// `node` of another graph with operands of this one, which are of the same types or make it be inferred
  /// anew. Its names are made unique.
  const Node* transplant(const NodePtr& node, std::span<const Value> inputs,
                         std::span<const Value> after, Annotations annotations);

  /// Takes over the inputs, parameters and names of `graph`, whose nodes are going to be shared.
  void adopt(const Graph& graph);
  /// Gives the name of a node of that graph, which is not going to be here, to the next who wants it.
  void free_name(const std::string& name);

  void output(Value value, std::string label = {});
  void write_back(Value target, Value source);
  void assume(Assumption assumption);
  ShapeEnv& env() { return *env_; }
  const std::shared_ptr<ShapeEnv>& shared_env() const { return env_; }
  std::size_t write_back_count() const;
  std::span<const NodePtr> nodes() const;
  std::span<const Value> inputs() const;

  /// Puts the inputs, all of which must be listed, into this order.
  void order_inputs(std::span<const Value> inputs);
  /// Removes inputs that nothing reads.
  void drop_inputs(std::span<const Value> inputs);

  /// What rollback() needs to undo everything since.
  struct Checkpoint {
    std::size_t nodes = 0;
    std::vector<Value> inputs;
    std::vector<std::string> input_labels;
    std::size_t write_backs = 0;
    std::size_t assumptions = 0;
    base::Facts facts;
    std::uint32_t next_unbacked = 0;
    std::map<std::string, std::uint32_t, std::less<>> generated;
  };
  Checkpoint checkpoint() const;
  void rollback(const Checkpoint& before);

  std::size_t reinferred() const { return reinferred_; }

  Graph finish();

 private:
  void note_names();
  std::string unique_name(std::string wanted, std::string_view prefix = "v");
  friend class Rewriter;
  /// Gives outputs of nodes made from number `first` on the names of what they replace.
  void take_names(const Node& replaced, std::span<const Value> by, std::size_t first);
  std::shared_ptr<Node> start_input(std::string_view op, TensorMeta meta, std::string name,
                                    Attrs attrs);
  void name_outputs(Node& node);
  /// Those of `like` where the node's results are not views of operands.
  /// `own`: the node's results, where no other node has them.
  static void assign_storages(Node& node, const Node* like, Node::Results* own);
  Node::Results* infer(Node& node);
  std::shared_ptr<Node> copy_of(const Node& like, std::span<const Value> inputs,
                                std::span<const Value> after);
  std::shared_ptr<ShapeEnv> env_;
  std::shared_ptr<Graph::Data> data_;
  std::vector<NodePtr> unnoted_;  ///< their names belong in taken_
  NameTable taken_;
  std::map<std::string, std::uint32_t, std::less<>> generated_;  ///< prefix → next number
  std::size_t reinferred_ = 0;
};

/// Copies a graph node by node with replacements: the tool passes are written with.
///
/// rewrite(graph, visit) walks nodes in order. `visit(rewriter, node)` returns the replacement values of
/// the node's outputs (made with rewriter.builder, reading operands through rewriter.map), or nothing
/// to keep the node; an empty vector drops it, when nothing but order reads it. Inputs are not
/// visited. What the visitor makes has the node's annotations, order and location, and names that begin with its
/// name; the value that replaces the node takes its name. Nodes whose operands did not change are shared. If no node was
/// replaced, the very same graph is returned: most passes leave most graphs as they are, and a walk that changes nothing costs
/// little more than its visits.
class Rewriter {
 public:
  /// The new graph, as far as it goes: made when it is first asked for.
  GraphBuilder& builder();
  /// The new value of an old one, which is the old one where nothing changed; null for one that was dropped.
  Value map(Value old) const;
  std::vector<Value> map(std::span<const Value> old) const;
  std::size_t reinferred() const;
  /// Leaves out write-back number `k` of the old graph: its target holds the value already.
  void drop_write_back(std::size_t k);

  /// Type-erased visitor: a plain function with its state.
  using Visit = std::optional<std::vector<Value>> (*)(void* state, Rewriter&, const NodePtr&);
  static Graph run(const Graph& graph, Visit visit, void* state);
  /// The graph without the nodes that `keep` refuses; order edges that lead from them are pruned. No
  /// kept node may read a removed one. Inputs stay.
  template <typename F>
  static Graph keep_only(const Graph& graph, F&& keep) {
    return run(
        graph,
        [](void* state, Rewriter&, const NodePtr& node) -> std::optional<std::vector<Value>> {
          if ((*static_cast<std::remove_reference_t<F>*>(state))(*node)) return std::nullopt;
          return std::vector<Value>();
        },
        const_cast<void*>(static_cast<const void*>(&keep)));
  }

 private:
  /// How far it has come.
  struct Walk;
  explicit Rewriter(Walk& walk) : walk_(walk) {}
  /// What `node` must come after, in the new graph.
  std::vector<Value> map_order(const Node& node) const;
  void visit_node(const NodePtr& node, Visit visit, void* state);
  void keep(const NodePtr& node);

  Walk& walk_;
};

template <typename F>
Graph rewrite(const Graph& graph, F&& visit) {
  return Rewriter::run(
      graph,
      [](void* state, Rewriter& rewriter, const NodePtr& node) {
        return (*static_cast<std::remove_reference_t<F>*>(state))(rewriter, node);
      },
      const_cast<void*>(static_cast<const void*>(&visit)));
}

}  // namespace heddle::ir
