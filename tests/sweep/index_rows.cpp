// Gathers, scatters and sorts.
#include "tests/sweep/op_table.h"

namespace heddle::testing {

using ir::Attrs;
using ir::Literal;

namespace {

/// `indices` of sizes [n] as [n, columns], the same in each.
Literal as_columns(const Literal& indices, std::int64_t columns = 1) {
  Literal result(indices.dtype(), {indices.count(), columns});
  for (std::int64_t k = 0; k < result.count(); ++k) result.set_int(k, indices.at_int(k / columns));
  return result;
}

void add_gather_rows(std::vector<OpRow>& rows) {
  for (const DType index : {i64, i32, i16, i8, u8}) {
    const std::string variant(name_of(index));
    rows.push_back({"gather", variant, all_dtypes(), [index](DType t, Extent e) {
                      return OneOp{"gather",
                                   {noise(t, {e.other(2), e.last(7), e.first(5)}),
                                    positions(index, 4 * e.factor, e.last(7))},
                                   {{"axis", std::int64_t{1}}}};
                    }});
  }
  rows.push_back({"gather_elements", "", all_dtypes(), [](DType t, Extent e) {
                    return OneOp{"gather_elements",
                                 {noise(t, {e.last(7), e.other(3)}),
                                  as_columns(positions(i64, 4 * e.factor, e.last(7)), e.factor)},
                                 {{"axis", std::int64_t{0}}}};
                  }});
  rows.push_back({"gather_nd", "", all_dtypes(), [](DType t, Extent e) {
                    return OneOp{"gather_nd",
                                 {noise(t, {e.last(7), e.first(5)}),
                                  as_columns(positions(i64, 4 * e.factor, e.last(7)))}};
                  }});
}

void add_scatter_rows(std::vector<OpRow>& rows) {
  for (const std::string reduction : {"none", "add", "mul", "max", "min"}) {
    const std::vector<DType> dtypes = reduction == "none" ? all_dtypes() : numbers();
    rows.push_back({"scatter_elements", reduction, dtypes, [reduction](DType t, Extent e) {
                      const Literal at =
                          as_columns(positions(i64, 9 * e.factor, e.last(7)), e.factor);
                      return OneOp{"scatter_elements",
                                   {noise(t, {e.last(7), e.other(3)}), at, noise(t, at.sizes(), 2)},
                                   {{"axis", std::int64_t{0}}, {"reduction", reduction}}};
                    }});
    rows.push_back({"scatter_nd", reduction, dtypes, [reduction](DType t, Extent e) {
                      const Literal at = as_columns(positions(i32, 9 * e.factor, e.last(7)));
                      return OneOp{"scatter_nd",
                                   {noise(t, {e.last(7), e.first(5)}), at,
                                    noise(t, {at.sizes()[0], e.first(5)}, 2)},
                                   {{"reduction", reduction}}};
                    }});
  }
  rows.push_back({"slice_scatter", "", all_dtypes(), [](DType t, Extent e) {
                    return OneOp{"slice_scatter",
                                 {noise(t, {e.first(3), 9 * e.factor, e.last(4)}),
                                  noise(t, {e.first(3), 5 * e.factor, e.last(4)}, 2)},
                                 {{"axis", std::int64_t{1}}, {"start", ir::SymExpr(2 * e.factor)}}};
                  }});
  for (const bool accumulate : {false, true})
    rows.push_back({"index_put", accumulate ? "add" : "", accumulate ? numbers() : all_dtypes(),
                    [accumulate](DType t, Extent e) {
                      const Literal rows = positions(i64, 9 * e.factor, e.last(7));
                      return OneOp{"index_put",
                                   {noise(t, {e.last(7), e.last(4)}), noise(t, {1}, 2), rows,
                                    positions(i64, 9 * e.factor, e.last(4))},
                                   {{"accumulate", accumulate}}};
                    }});
}

/// [rows, length] of runs of 4 elements, each in ascending order.
Literal runs_of_four(DType dtype, std::int64_t rows, std::int64_t length) {
  Literal result(dtype, {rows, length});
  for (std::int64_t k = 0; k < result.count(); ++k) {
    const std::int64_t value = k % length % 4 * 3 + k / 5 % 3;
    if (is_floating(dtype))
      result.set(k, static_cast<double>(value));
    else
      result.set_int(k, value);
  }
  return result;
}

void add_ordered_rows(std::vector<OpRow>& rows) {
  rows.push_back({"merge_runs", "", numbers(),
                  [](DType t, Extent e) {
                    const Literal keys = runs_of_four(t, e.first(3), e.last(19));
                    return OneOp{"merge_runs",
                                 {keys, noise(i64, keys.sizes())},
                                 {{"run", std::int64_t{4}}, {"count", ir::SymExpr(3)}}};
                  },
                  0});  // keys are in order
  for (const std::string reduction : {"none", "add"})
    rows.push_back({"ordered_scatter", reduction, reduction == "none" ? all_dtypes() : numbers(),
                    [reduction](DType t, Extent e) {
                      const std::int64_t slices = e.last(7);
                      Literal to(i64, {slices == 0 ? 0 : 9 * e.factor}), order(i64, to.sizes());
                      for (std::int64_t k = 0; k < to.count(); ++k) {
                        to.set_int(k, k / 2 % slices < k / 2 ? slices - 1 : k / 2);
                        order.set_int(k, k);
                      }
                      return OneOp{"ordered_scatter",
                                   {noise(t, {slices, e.first(5)}), to, order,
                                    noise(t, {to.count(), e.first(5)}, 2)},
                                   {{"coordinates", std::int64_t{1}}, {"reduction", reduction}}};
                    }});
}

}  // namespace

void add_index_rows(std::vector<OpRow>& rows) {
  add_gather_rows(rows);
  add_scatter_rows(rows);
  add_ordered_rows(rows);
  for (const bool descending : {false, true})
    rows.push_back(
        {"sort", descending ? "descending" : "", numbers(), [descending](DType t, Extent e) {
           return OneOp{"sort",
                        {noise(t, {e.first(3), e.last(19)})},
                        {{"axis", std::int64_t{-1}}, {"descending", descending}}};
         }});
  for (const bool largest : {true, false})
    rows.push_back(
        {"topk", largest ? "largest" : "smallest", numbers(), [largest](DType t, Extent e) {
           return OneOp{
               "topk",
               {noise(t, {e.last(19), e.first(3)})},
               {{"k", ir::SymExpr(e.last(4))}, {"axis", std::int64_t{0}}, {"largest", largest}}};
         }});
}

}  // namespace heddle::testing
