// FlexAttention: attention whose scores and weights graphs of the model's own change.

#include "engine/onnx/control_flow.h"
#include "engine/onnx/onnx.pb.h"
#include "heddle/error.h"

namespace heddle::onnx {

namespace {

class FlexAttention {
 public:
  FlexAttention(const Node& node, const RunBody& run) : node_(node), run_(run) {
    const char* const names[] = {"Q", "K", "V"};
    Tensor* const operands[] = {&q_, &k_, &v_};
    for (std::size_t k = 0; k < 3; ++k) {
      *operands[k] = node.tensor(k);
      if (operands[k]->rank() != 4)
        node.malformed(names[k], "four dimensions", std::to_string(operands[k]->rank()));
    }
  }

  Tensor convert() const {
    const double scale = node_.number("scale", 0);
    const DType precision = node_.dtype("softmax_precision", q_.dtype() == f64 ? f64 : f32);
    if (!is_floating(precision))
      node_.malformed("softmax_precision", "a real type", std::string(name_of(precision)));
    const bool is_plain = !node_.has_attr("score_mod") && !node_.has_attr("prob_mod");
    // What attention() rounds to is f32, or f64 of f64.
    if (is_plain && precision == (q_.dtype() == f64 ? f64 : f32))
      return attention(q_, k_, v_, {}, false, scale, 0);
    Tensor scores = by_queries(matmul(by_keys(q_), transpose(k_, 2, 3)));
    scores =
        scale != 0 ? scores * scale : scores * rsqrt(cast(size_tensor(q_.size(3)), scores.dtype()));
    scores = modified("score_mod", cast(scores, precision));
    const Tensor weights = modified("prob_mod", softmax(scores, -1));
    return by_queries(matmul(by_keys(cast(weights, v_.dtype())), v_));
  }

 private:
  /// [B, H, L, x] as [B, heads of keys, H / that * L, x]: queries of heads that share keys are rows of one product.
  Tensor by_keys(const Tensor& x) const {
    const SymInt heads = k_.size(1);
    return reshape(x, {x.size(0), heads, x.size(1) / heads * x.size(2), x.size(3)});
  }
  Tensor by_queries(const Tensor& x) const {
    return reshape(x, {q_.size(0), q_.size(1), q_.size(2), x.size(3)});
  }

  /// What the graph `name` makes of x; x itself where there is none.
  Tensor modified(std::string_view name, const Tensor& x) const {
    if (!node_.has_attr(name)) return x;
    const onnx_format::GraphProto& graph = node_.graph(name);
    if (graph.input_size() != 1 || graph.output_size() != 1)
      node_.malformed(
          std::string(name), "one input and one output",
          std::to_string(graph.input_size()) + " and " + std::to_string(graph.output_size()));
    const Tensor result = run_(graph, {Value(x)})[0];
    if (result.rank() != 4 || result.dtype() != x.dtype())
      node_.malformed(
          std::string(name),
          "a result of four dimensions, " + std::string(heddle::name_of(x.dtype())),
          std::to_string(result.rank()) + ", " + std::string(heddle::name_of(result.dtype())));
    return expand(result, x.shape());
  }

  const Node& node_;
  const RunBody& run_;
  Tensor q_, k_, v_;
};

}  // namespace

Outputs convert_flex_attention(const Node& node, const RunBody& run, const FindValue&) {
  return {FlexAttention(node, run).convert()};
}

}  // namespace heddle::onnx
