// A trace in progress: the graph being built and what the callable may do to it.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <set>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include "engine/parameters.h"
#include "engine/tensor_impl.h"
#include "heddle/ops.h"
#include "ir/graph.h"

namespace heddle::engine {

/// One call of a callable with symbolic tensors. Traces on one thread form a stack; those of other
/// threads are independent.
class Trace : public std::enable_shared_from_this<Trace> {
 public:
  /// `parent`: the trace around a region's; its values may be captured.
  Trace(std::string name, std::shared_ptr<ir::ShapeEnv> env,
        std::shared_ptr<Trace> parent = nullptr);

  ir::GraphBuilder& builder() { return builder_; }
  ir::ShapeEnv& env() { return builder_.env(); }

  /// The handle of a value of this trace.
  Tensor handle(ir::Value value);
  /// The value of an operand: one of this trace, or a concrete tensor captured as a parameter.
  /// @throws TraceError for a value of another trace.
  ir::Value value_of(const Tensor& tensor, const base::Location& where);
  /// The parameter that `tensor` is, called `name` unless that is empty. Of the root, once for each tensor.
  ir::Value parameter(const Tensor& tensor, std::string name);
  /// Takes the values and labels of parameters from `table`, which outlives the trace.
  void use(const ParameterTable& table) { table_ = &table; }

  std::vector<Tensor> apply(std::string_view op, std::span<const Tensor> operands, OpAttrs attrs,
                            const base::Location& where);

  /// A value of the parent that this trace captured, and the input that stands for it.
  struct Capture {
    ir::Value outer;
    ir::Value inner;
  };
  /// In order of first use.
  const std::vector<Capture>& captures() const { return captures_; }
  /// The input that stands for a value of the parent; made on first use.
  ir::Value capture(ir::Value outer);
  /// The value that order names for a node of this trace that comes after `tensor`. Null for a tensor of a trace
  /// around this one, which would be an operand: the call that this trace becomes part of comes after it then.
  ir::Value order_after(const Tensor& tensor);
  Trace* parent() const { return parent_.get(); }
  Trace& root() { return parent_ ? parent_->root() : *this; }

  /// Handles of a region's values that are still in use, in the order in which they were made.
  std::vector<std::shared_ptr<Tensor::Impl>> living_handles() const;
  /// Makes a handle one of this trace, and the name of `value`.
  void repoint(const std::shared_ptr<Tensor::Impl>& handle, ir::Value value);

  /// `graph` under a name like `wanted`; one that is equal to an earlier one is that one. Of the root.
  ir::GraphRef install(const std::string& wanted, ir::Graph graph);

  /// What rollback() needs to undo everything that was traced since, in this trace and those around it.
  struct Checkpoint {
    ir::GraphBuilder::Checkpoint graph;
    std::size_t captured = 0;
    std::size_t captures = 0;
    std::map<ir::Value, ir::Value> written;
    ir::Value last_effect;
    std::vector<ir::Value> call_after;
    std::unique_ptr<Checkpoint> parent;
  };
  Checkpoint checkpoint() const;
  void rollback(const Checkpoint& before);

  /// The newest value of `value`, or of the view that it is: what a call of an op that writes its base
  /// left there.
  ir::Value current(ir::Value value);
  /// Makes the newest values of written inputs the graph's write-backs. Call once, at the end.
  void write_back_inputs();
  /// Whether an op wrote to an input of this trace.
  bool writes_inputs() const;
  /// Appends a node with nested graphs; one with effects stays in order with other effects.
  const ir::Node* call_regions(std::string_view op, std::span<const ir::Value> operands,
                               ir::Attrs attrs);
  /// `state`, an input, holds `value` from here on, and after the call.
  void assign(const Tensor& state, const Tensor& value, const base::Location& where);

  /// Whether the trace has ended: handles that outlive it are errors when used.
  bool ended() const { return ended_; }
  void end() { ended_ = true; }

  /// The tensors that the parameters of the root stand for.
  const std::map<ir::Value, Tensor>& originals() const { return originals_; }

 private:
  bool is_around(const Trace* inner) const;
  const ir::Node* call_fitted(const ir::OpDef& op, std::vector<ir::Value> values,
                              const ir::Attrs& attrs);
  std::vector<Tensor> apply_custom(const ir::OpDef& op, std::vector<ir::Value> values,
                                   ir::Attrs attrs, const base::Location& where);
  ir::Value moved(ir::Value value, ir::Value root, ir::Value by);
  std::uint64_t places_of(const ir::Graph& body);

  ir::GraphBuilder builder_;
  std::shared_ptr<Trace> parent_;
  std::map<ir::Value, ir::Value> written_;  ///< base → its value after the last write
  std::map<std::pair<ir::Value, ir::Value>, ir::Value> moved_;  ///< (view, new base) → new view
  ir::Value last_effect_;              ///< of the last call of an op that is not pure
  std::vector<ir::Value> call_after_;  ///< what the next call with nested graphs comes after
  std::map<const void*, ir::Value> by_tensor_;
  std::map<ir::Value, ir::Value> by_outer_;
  std::map<ir::Value, Tensor> originals_;
  const ParameterTable* table_ = nullptr;
  std::vector<Tensor> captured_;  ///< kept, so that by_tensor_ knows them by address
  std::vector<Capture> captures_;
  std::vector<std::weak_ptr<Tensor::Impl>> handles_;                ///< of a region
  std::map<std::array<std::uint64_t, 3>, ir::GraphRef> installed_;  ///< by what they do and where
  std::map<const ir::Graph*, std::uint64_t> places_;                ///< of nested bodies
  std::set<std::string> installed_names_;
  bool ended_ = false;
};

/// The innermost trace of this thread; null outside.
Trace* current_trace();

/// Makes `trace` the innermost one of this thread while alive.
class TraceScope {
 public:
  explicit TraceScope(std::shared_ptr<Trace> trace);
  ~TraceScope();
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  std::shared_ptr<Trace> trace_;
};

/// What a front end wants values traced now to be called; empty: nothing.
std::string wanted_name();

SymInt from_expr(const base::SymExpr& expr, const std::shared_ptr<Trace>& trace);

/// Runs one op on concrete tensors, compiled and cached by op and attributes.
std::vector<Tensor> run_eagerly(std::string_view op, std::span<const Tensor> operands,
                                OpAttrs attrs, const std::source_location& where);

}  // namespace heddle::engine
