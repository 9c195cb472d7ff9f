// A body traced into a graph of its own, before it becomes part of a call.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/trace.h"
#include "heddle/control_flow.h"

namespace heddle::engine {

class RegionTrace {
 public:
  /// Whether nodes of the body carry the annotations of the call. Not those of a body that others may call too.
  enum class Scope : std::uint8_t { OfTheCall, Own };
  /// Traces `body` on `arguments`. `label` names it in errors: "cond then".
  /// @throws MutationError, and what the body throws with the label before it: an exception that is none of
  ///         the engine's nested in a TraceError.
  RegionTrace(std::string label, std::string graph_name, std::span<const ir::TensorMeta> arguments,
              const detail::Body& body, const base::Location& where,
              Scope scope = Scope::OfTheCall);

  const std::string& label() const { return label_; }
  const std::vector<detail::Leaves::Leaf>& leaves() const { return leaves_.leaves; }
  const std::string& structure() const { return leaves_.structure; }
  /// The value of each leaf; sizes as scalars.
  const std::vector<ir::Value>& values() const { return values_; }
  std::span<const ir::Value> arguments() const { return arguments_; }
  Trace& trace() { return *trace_; }
  const std::vector<Trace::Capture>& captures() const { return trace_->captures(); }

  /// Values that the body keeps in handles outside what it returned, each once, without inputs.
  std::vector<ir::Value> leaks() const;
  /// @throws SideEffectError when there are any.
  void refuse_leaks() const;

  /// Adds an output; a value that shares storage with an input or an earlier output is copied.
  void add_fresh_output(ir::Value value);
  void add_output(ir::Value value) { trace_->builder().output(value); }
  /// The finished graph, installed at the outermost trace.
  ir::GraphRef finish();

  /// Sizes that the body found at run time are from here on those of the results of `call`.
  ///
  /// @param results  sizes of the body's, in the order of those of the call.
  void name_late_sizes(std::span<const ir::Dims> results, const ir::Node& call);
  /// Makes the handles of leaf k, wherever they are, name `value` of the surrounding trace; the host value
  /// gets a handle of its own where it holds one of that trace.
  void repoint(std::size_t leaf, ir::Value value);
  /// The same for every other handle of a value of this trace.
  void repoint_kept(ir::Value inner, ir::Value outer);
  /// Handles of inputs that outlived the body name what the inputs stood for.
  void repoint_inputs(std::span<const ir::Value> operands);

 private:
  std::string label_;
  std::string graph_name_;
  base::Location where_;
  std::shared_ptr<Trace> trace_;
  detail::Leaves leaves_;
  std::vector<ir::Value> arguments_;
  std::vector<ir::Value> values_;
  base::SymbolExprs late_;  ///< sizes found in the body, as the results of its call have them
  std::set<ir::StorageId> storages_;  ///< of inputs and outputs
  struct Pointed {
    ir::Value value;
    Tensor handle;
    Tensor before;  ///< keeps the address taken
  };
  std::map<const Tensor::Impl*, Pointed> pointed_;  ///< by the handle that the body returned
};

/// Gives both traces the same inputs: the arguments, then what both captured, then what only the first or the
/// second did, each group sorted by name. @return the captured values, in that order.
std::vector<ir::Value> share_signature(RegionTrace& first, RegionTrace& second);

}  // namespace heddle::engine
