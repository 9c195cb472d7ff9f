// If: the branch in its place when the condition is known, else both as a cond.
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <utility>

#include "engine/onnx/control_flow.h"
#include "engine/onnx/nested_values.h"
#include "engine/onnx/onnx.pb.h"
#include "heddle/control_flow.h"
#include "heddle/error.h"
#include "heddle/onnx.h"

namespace heddle::onnx {

using onnx_format::GraphProto;

namespace {

/// A branch that does not fit the sizes of the inputs is one that is not meant for them: what chooses must be known.
NeedsValueError branch_misfit(const Node& node, const std::string& input, const Error& misfit) {
  return {{.what = "If: input 0 (cond), a branch of which does not fit the inputs",
           .where = node.where(),
           .expected = "a value that is known when tracing",
           .got = fmt::format("one computed from the graph input {} ({})", input, misfit.what())},
          input};
}

/// Whether both branches are good and only give different types, as ranks.
bool differ_in_results(const Error& misfit) {
  return misfit.parts().what.starts_with("cond: C3 results");
}

[[noreturn]] void refuse_misfit(const Node& node, const Error& misfit) {
  const std::string& input = node.value(0).source();
  if (!input.empty()) throw branch_misfit(node, input, misfit);
  node.unsupported("branches whose results differ: " + std::string(misfit.what()));
}

using Shapes = std::vector<SymInts>;

bool is_one_element(const SymInts& shape) {
  return shape.size() == 1 && !shape[0].is_symbolic() && shape[0].value() == 1;
}

/// Scalars as vectors of one element where the other branch gives such, as Paddle's exporter writes branches.
std::vector<Tensor> as_beside(std::vector<Tensor> results, const Shapes& others) {
  for (std::size_t k = 0; k < std::min(results.size(), others.size()); ++k)
    if (results[k].rank() == 0 && is_one_element(others[k])) results[k] = reshape(results[k], {1});
  return results;
}

/// What the branches of an If give, as tensors.
class BranchResults {
 public:
  explicit BranchResults(const RunBody& run) : run_(run) {}

  /// @param other  the other branch: what it gave when it was traced last tells the elements of a sequence that has none here
  std::vector<Tensor> of(const GraphProto& branch, const GraphProto& other) {
    const std::vector<Value> values = run_.values(branch, {});
    std::vector<Tensor> tensors;
    Types& types = types_[&branch];
    types.assign(values.size(), {});
    is_sequence_.resize(std::max(is_sequence_.size(), values.size()));
    for (std::size_t k = 0; k < values.size(); ++k) {
      if (!values[k].is_sequence()) {
        tensors.push_back(tensor_between(values[k]));
        continue;
      }
      is_sequence_[k] = true;
      types[k] = element_type(values[k]);
      const Types& beside = types_[&other];
      if (types[k])
        tensors.push_back(values[k].rows());
      else if (k < beside.size() && beside[k])
        tensors.push_back(no_rows(*beside[k]));
      else
        misses_ = true, tensors.push_back(Tensor::zeros(f32, {0}));
    }
    return tensors;
  }

  /// Whether the elements of a sequence were not known since the last question: now they may be.
  bool missed() { return std::exchange(misses_, false); }

  Outputs outputs(const std::vector<Tensor>& results) const {
    Outputs outputs = outputs_of(results);
    for (std::size_t k = 0; k < outputs.size(); ++k)
      if (is_sequence_[k]) outputs[k] = Value::of_rows(results[k]);
    return outputs;
  }

 private:
  using Types = std::vector<std::optional<ElementType>>;
  const RunBody& run_;
  std::map<const GraphProto*, Types> types_;
  std::vector<bool> is_sequence_;
  bool misses_ = false;
};

}  // namespace

Outputs convert_if(const Node& node, const RunBody& run, const FindValue&) {
  const GraphProto& yes = node.graph("then_branch");
  const GraphProto& no = node.graph("else_branch");
  check_types(node, yes);
  check_types(node, no);
  if (const auto known = known_integer(node, 0); known && !known->is_symbolic())
    return run.values(known->value() != 0 ? yes : no, {});
  const Tensor condition = scalar_of(node.tensor(0));
  BranchResults branches(run);
  const auto choose_once = [&](const auto& results_of) {
    return branches.outputs(
        cond(condition, [&] { return results_of(yes, no); }, [&] { return results_of(no, yes); }));
  };
  const auto choose = [&](const auto& results_of) {
    try {
      Outputs outputs = choose_once(results_of);
      if (!branches.missed()) return outputs;
    } catch (const Error& misfit) {
      if (!branches.missed() || !differ_in_results(misfit)) throw;
    }
    return choose_once(results_of);
  };
  std::map<const GraphProto*, Shapes> shapes;
  try {
    return choose([&](const GraphProto& branch, const GraphProto& other) {
      std::vector<Tensor> results = branches.of(branch, other);
      Shapes& seen = shapes[&branch] = {};
      for (const Tensor& result : results) seen.push_back(result.shape());
      return results;
    });
  } catch (const ShapeError& misfit) {
    if (node.value(0).source().empty() && !differ_in_results(misfit)) throw;
    if (!differ_in_results(misfit)) refuse_misfit(node, misfit);
  } catch (const DTypeError& misfit) {
    if (!differ_in_results(misfit)) throw;
  }
  try {
    return choose([&](const GraphProto& branch, const GraphProto& other) {
      return as_beside(branches.of(branch, other), shapes[&other]);
    });
  } catch (const Error& misfit) {
    if (!differ_in_results(misfit)) throw;
    refuse_misfit(node, misfit);
  }
}

}  // namespace heddle::onnx
