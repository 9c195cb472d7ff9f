// Every op, for every dtype it takes, compiled for the CPU and for the simulated CUDA device: plain, empty, size-1,
// non-contiguous, repeated and NaN operands give what its definition gives. HEDDLE_NIGHTLY=1 takes all on the latter, else a
// third of the rows for a dtype each.
#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "engine/tensor_impl.h"
#include "heddle/error.h"
#include "heddle/heddle.h"
#include "ir/op.h"
#include "tests/cuda/support.h"
#include "tests/support/op_samples.h"
#include "tests/sweep/op_callable.h"
#include "tests/sweep/op_table.h"

namespace heddle::testing {
namespace {

using ir::Literal;

/// Engines of one op, one for each set of attributes: calls that differ in sizes share compiles.
class Engines {
 public:
  explicit Engines(EngineOptions options) : options_(std::move(options)) {}

  /// The compiled results, or the error that the engine reports.
  std::vector<Literal> run(const OneOp& call) {
    std::vector<Literal> results;
    Engine& engine = engine_of(call);
    for (const Tensor& output : engine.run(inputs_of(call)))
      results.push_back(engine::to_literal(output.to(Device::cpu())));
    EXPECT_EQ(engine.stats().evaluator_steps, 0u);
    return results;
  }

 private:
  struct Entry {
    std::string_view op;
    ir::Attrs attrs;
    std::size_t operands;
    Engine engine;
  };

  Engine& engine_of(const OneOp& call) {
    for (Entry& entry : entries_) {
      if (entry.op == call.op && entry.operands == call.operands.size() &&
          ir::equal(entry.attrs, call.attrs))
        return entry.engine;
    }
    entries_.push_back({call.op, call.attrs, call.operands.size(),
                        Engine(Engine::FromTrace{}, callable_of(call), options_, {})});
    return entries_.back().engine;
  }

  EngineOptions options_;
  std::vector<Entry> entries_;
};

/// Sums of a few dozen terms, or a function within a few units in the last place.
double tolerance_for(DType dtype) { return 4 * tolerance_of(dtype); }

/// The engine gives what the definition gives, or both refuse the call.
void expect_agrees(Engines& engines, const OneOp& call) {
  SCOPED_TRACE(describe(call));
  std::vector<Literal> want;
  std::string refused;
  try {
    want = evaluate(call);
  } catch (const Error& error) {
    refused = error.what();
  }
  std::vector<Literal> got;
  try {
    got = engines.run(call);
  } catch (const Error& error) {
    if (refused.empty()) ADD_FAILURE() << "only the engine refuses: " << error.what();
    return;
  }
  if (!refused.empty()) {
    ADD_FAILURE() << "only the definition refuses: " << refused;
    return;
  }
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    SCOPED_TRACE("output " + std::to_string(k));
    expect_close(got[k], want[k], tolerance_for(want[k].dtype()));
  }
}

template <typename F>
OneOp changed(OneOp call, F&& change) {
  for (Literal& operand : call.operands) {
    if (!is_absent(operand)) operand = change(operand);
  }
  return call;
}

/// Operands with NaN and both infinities, each at places of its own.
OneOp with_specials(const OneOp& call, const OpRow& row) {
  std::int64_t shift = 1;
  std::size_t left = row.specials;
  return changed(call, [&](const Literal& operand) {
    if (left == 0) return operand;
    --left;
    if (!is_floating(operand.dtype()) || operand.count() == 0) return operand;
    Literal result = operand.clone();
    const std::int64_t count = result.count();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    result.set((5 * shift + 2) % count, kInfinity);
    result.set((11 * shift + 7) % count, -kInfinity);
    result.set(shift % count, std::numeric_limits<double>::quiet_NaN());
    shift += 3;
    return result;
  });
}

/// The first operand with its rows all in one place: a stride of 0.
std::optional<OneOp> with_repeated_rows(OneOp call) {
  if (call.operands.empty() || call.operands[0].rank() == 0) return {};
  Literal& x = call.operands[0];
  ir::Sizes strides = x.strides();
  strides[0] = 0;
  x = x.view(x.sizes(), strides, 0);
  return call;
}

bool has_floats(const OneOp& call) {
  return std::any_of(call.operands.begin(), call.operands.end(),
                     [](const Literal& x) { return !is_absent(x) && is_floating(x.dtype()); });
}

/// Whether inference takes the row's call for this dtype.
bool takes(const OpRow& row, DType dtype) {
  try {
    graph_of(row.make(dtype, {}));
    return true;
  } catch (const Error&) {
    return false;
  }
}

class OpSweep : public ::testing::TestWithParam<std::size_t> {
 protected:
  const OpRow& row() const { return op_table()[GetParam()]; }
};

std::vector<std::size_t> row_numbers() {
  std::vector<std::size_t> numbers(op_table().size());
  for (std::size_t k = 0; k < numbers.size(); ++k) numbers[k] = k;
  return numbers;
}

INSTANTIATE_TEST_SUITE_P(Ops, OpSweep, ::testing::ValuesIn(row_numbers()),
                         [](const auto& row) { return op_table()[row.param].name(); });

TEST_P(OpSweep, TakesTheDTypesOfItsRow) {
  for (const DType dtype : kAllDTypes) {
    const auto& listed = row().dtypes;
    const bool expected = std::find(listed.begin(), listed.end(), dtype) != listed.end();
    EXPECT_EQ(takes(row(), dtype), expected) << name_of(dtype);
  }
}

/// Calls of a row for a dtype, of all extents.
void expect_row_agrees(const OpRow& row, DType dtype, const EngineOptions& options) {
  using Kind = Extent::Kind;
  SCOPED_TRACE(name_of(dtype));
  Engines engines(options);
  for (const Kind kind : {Kind::Plain, Kind::EmptyFirst, Kind::EmptyLast, Kind::One}) {
    SCOPED_TRACE("extent " + std::to_string(static_cast<int>(kind)));
    const OneOp call = row.make(dtype, {kind});
    expect_agrees(engines, call);
    SCOPED_TRACE("non-contiguous");
    expect_agrees(engines, changed(call, spread_out));
  }
  const OneOp plain = row.make(dtype, {});
  if (const auto repeated = with_repeated_rows(plain)) {
    SCOPED_TRACE("repeated rows");
    expect_agrees(engines, *repeated);
  }
  if (!has_floats(plain)) return;
  const OneOp special = with_specials(plain, row);
  SCOPED_TRACE("NaN and infinities");
  expect_agrees(engines, special);
  SCOPED_TRACE("non-contiguous");
  expect_agrees(engines, changed(special, spread_out));
}

TEST_P(OpSweep, AgreesWithItsDefinition) {
  for (const DType dtype : row().dtypes) expect_row_agrees(row(), dtype, {.threads = 1});
}

TEST_P(OpSweep, AgreesWithItsDefinitionOnCuda) {
  if (!is_nightly() && GetParam() % 3 != 0) GTEST_SKIP() << "HEDDLE_NIGHTLY=1 takes all rows";
  const std::vector<DType>& all = row().dtypes;
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (!is_nightly() && k != GetParam() / 3 % all.size()) continue;
    interleave(k);
    expect_row_agrees(row(), all[k], on_cuda());
  }
  interleave(0);
}

/// Ops that have no row, and why.
const std::set<std::string_view> kWithoutRow = {
    "input", "param",  // nothing to compute: every other row has inputs
};

bool takes_graphs(const ir::OpDef& op) {
  return std::any_of(op.attrs.begin(), op.attrs.end(),
                     [](const ir::AttrSpec& attr) { return attr.kind == ir::AttrKind::Graph; });
}

TEST(OpTable, HasARowForEveryOp) {
  std::set<std::string_view> rows;
  for (const OpRow& row : op_table()) rows.insert(row.op);
  for (const ir::OpDef* op : ir::all_ops()) {
    // Higher-order ops have tests of their own: their operands are what their graphs take.
    if (takes_graphs(*op) || kWithoutRow.contains(op->name)) continue;
    EXPECT_TRUE(rows.contains(op->name)) << op->name << " needs a row in tests/sweep";
  }
}

TEST(OpTable, NamesAreItsOwn) {
  std::set<std::string> names;
  for (const OpRow& row : op_table()) EXPECT_TRUE(names.insert(row.name()).second) << row.name();
}

}  // namespace
}  // namespace heddle::testing
