// A trace in progress: the graph being built and what the callable may do to it.
#pragma once

#include <map>
#include <memory>
#include <source_location>
#include <span>
#include <string_view>
#include <vector>

#include "engine/tensor_impl.h"
#include "heddle/ops.h"
#include "ir/graph.h"

namespace heddle::engine {

/// One call of a callable with symbolic tensors. Traces on one thread form a stack; those of other
/// threads are independent.
class Trace : public std::enable_shared_from_this<Trace> {
 public:
  Trace(std::string name, std::shared_ptr<ir::ShapeEnv> env);

  ir::GraphBuilder& builder() { return builder_; }
  ir::ShapeEnv& env() { return builder_.env(); }

  /// The handle of a value of this trace.
  Tensor handle(ir::Value value);
  /// The value of an operand: one of this trace, or a concrete tensor captured as a parameter.
  /// @throws TraceError for a value of another trace.
  ir::Value value_of(const Tensor& tensor, const base::Location& where);

  std::vector<Tensor> apply(std::string_view op, std::span<const Tensor> operands, OpAttrs attrs,
                            const base::Location& where);

  /// The newest value of `value`, or of the view that it is: what a call of an op that writes its base
  /// left there.
  ir::Value current(ir::Value value);
  /// Makes the newest values of written inputs the graph's write-backs. Call once, at the end.
  void write_back_inputs();

  /// Whether the trace has ended: handles that outlive it are errors when used.
  bool ended() const { return ended_; }
  void end() { ended_ = true; }

  /// The tensors captured as parameters, in order.
  const std::vector<Tensor>& parameters() const { return captured_; }

 private:
  std::vector<Tensor> apply_custom(const ir::OpDef& op, std::vector<ir::Value> values,
                                   ir::Attrs attrs, const base::Location& where);
  ir::Value moved(ir::Value value, ir::Value root, ir::Value by);

  ir::GraphBuilder builder_;
  std::map<ir::Value, ir::Value> written_;  ///< base → its value after the last write
  std::map<std::pair<ir::Value, ir::Value>, ir::Value> moved_;  ///< (view, new base) → new view
  ir::Value last_effect_;  ///< of the last call of an op that is not pure
  std::map<const void*, ir::Value> by_tensor_;
  std::vector<Tensor> captured_;
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

SymInt from_expr(const base::SymExpr& expr, const std::shared_ptr<Trace>& trace);

/// Runs one op on concrete tensors, compiled and cached by op and attributes.
std::vector<Tensor> run_eagerly(std::string_view op, std::span<const Tensor> operands,
                                OpAttrs attrs, const std::source_location& where);

}  // namespace heddle::engine
