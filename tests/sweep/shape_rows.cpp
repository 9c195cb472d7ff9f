// Ops that move elements about or make them from nothing.
#include "tests/sweep/op_table.h"

namespace heddle::testing {

using ir::Dims;
using ir::Literal;
using Ints = std::vector<std::int64_t>;

namespace {

void add_view_rows(std::vector<OpRow>& rows) {
  for (const std::string_view op : {"alias", "clone"})
    rows.push_back({op, "", all_dtypes(), [op](DType t, Extent e) {
                      return OneOp{op, {noise(t, {e.first(3), e.last(9)})}};
                    }});
  rows.push_back({"reshape", "", all_dtypes(), [](DType t, Extent e) {
                    const std::int64_t first = e.first(4);
                    const std::int64_t last = e.last(6);
                    const std::int64_t other = e.other(2);
                    return OneOp{"reshape",
                                 {noise(t, {first, other, last})},
                                 {{"sizes", Dims{other, first * last}}}};
                  }});
  rows.push_back({"permute", "", all_dtypes(), [](DType t, Extent e) {
                    return OneOp{"permute",
                                 {noise(t, {e.first(3), e.other(2), e.last(5)})},
                                 {{"perm", Ints{2, 0, -2}}}};
                  }});
  rows.push_back({"expand", "", all_dtypes(), [](DType t, Extent e) {
                    return OneOp{"expand",
                                 {noise(t, {e.first(3), 1})},
                                 {{"sizes", Dims{e.other(2), e.first(3), e.last(5)}}}};
                  }});
  rows.push_back({"slice", "", all_dtypes(), [](DType t, Extent e) {
                    const std::int64_t last = e.last(19);
                    return OneOp{"slice",
                                 {noise(t, {e.first(3), last})},
                                 {{"start", Dims{0, last / 4}},
                                  {"limit", Dims{e.first(3), last}},
                                  {"stride", Dims{1, 2}}}};
                  }});
  rows.push_back({"unfold", "", all_dtypes(), [](DType t, Extent e) {
                    return OneOp{"unfold",
                                 {noise(t, {e.first(3), e.other(2) + e.last(19)})},
                                 {{"axis", std::int64_t{1}},
                                  {"size", std::max<std::int64_t>(e.last(19) / 2, 1)},
                                  {"step", std::int64_t{3}}}};
                  }});
  rows.push_back({"reverse", "", all_dtypes(), [](DType t, Extent e) {
                    return OneOp{
                        "reverse", {noise(t, {e.first(3), e.last(19)})}, {{"axes", Ints{0, -1}}}};
                  }});
}

void add_pad_rows(std::vector<OpRow>& rows) {
  rows.push_back({"pad", "constant", all_dtypes(), [](DType t, Extent e) {
                    return OneOp{"pad",
                                 {noise(t, {e.first(3), e.last(9)}), Literal::scalar(f64, 1)},
                                 {{"low", Dims{1, 0}}, {"high", Dims{0, 2}}}};
                  }});
  for (const std::string mode : {"edge", "reflect", "wrap"})
    rows.push_back({"pad", mode, all_dtypes(), [mode](DType t, Extent e) {
                      return OneOp{"pad",
                                   {noise(t, {e.first(3), e.other(9)})},
                                   {{"low", Dims{0, 3}}, {"high", Dims{0, 4}}, {"mode", mode}}};
                    }});
}

void add_join_rows(std::vector<OpRow>& rows) {
  rows.push_back({"concat", "", all_dtypes(), [](DType t, Extent e) {
                    const std::int64_t first = e.first(3);
                    return OneOp{"concat",
                                 {noise(t, {first, e.last(5)}), noise(t, {first, e.factor}, 2),
                                  noise(t, {first, 17 * e.factor}, 3)},
                                 {{"axis", std::int64_t{1}}}};
                  }});
  rows.push_back({"split", "", all_dtypes(), [](DType t, Extent e) {
                    const std::int64_t last = e.last(19);
                    return OneOp{
                        "split",
                        {noise(t, {e.first(3), last})},
                        {{"axis", std::int64_t{-1}}, {"sizes", Dims{last / 3, last - last / 3}}}};
                  }});
}

void add_creation_rows(std::vector<OpRow>& rows) {
  rows.push_back(
      {"iota", "", numbers(), [](DType t, Extent e) {
         return OneOp{
             "iota",
             {},
             {{"sizes", Dims{e.first(3), e.last(19)}}, {"axis", std::int64_t{1}}, {"dtype", t}}};
       }});
  rows.push_back({"symint", "", integers(), [](DType t, Extent e) {
                    return OneOp{"symint", {}, {{"value", ir::SymExpr(e.first(7))}, {"dtype", t}}};
                  }});
  rows.push_back(
      {"const", "", all_dtypes(), [](DType t, Extent e) {
         return OneOp{
             "const",
             {},
             {{"value", std::make_shared<const Literal>(noise(t, {e.first(3), e.last(19)}))}}};
       }});
  for (const std::string_view op : {"random_uniform", "random_normal"})
    rows.push_back(
        {op, "", floats(), [op](DType t, Extent e) {
           return OneOp{
               op,
               {ints(i64, {2}, {7, 3})},
               {{"sizes", Dims{e.first(3), e.kind == Extent::Kind::EmptyLast ? 0 : 19 * e.factor}},
                {"dtype", t}}};
         }});
}

}  // namespace

void add_shape_rows(std::vector<OpRow>& rows) {
  add_view_rows(rows);
  add_pad_rows(rows);
  add_join_rows(rows);
  add_creation_rows(rows);
}

}  // namespace heddle::testing
