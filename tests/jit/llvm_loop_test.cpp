#include <gtest/gtest.h>
#include <numeric>

#include "jit/nest_builder.h"
#include "tests/jit/nest_runner.h"

namespace heddle::jit {
namespace {
using ir::ScalarOp;
using tests::CompiledNest;

TEST(LlvmLoop, AddRelu) {
  NestBuilder b("add_relu");
  const SymExpr n = SymExpr::size(0);
  b.nest().size_count = 1;
  const auto x = b.add_global(f32, n), y = b.add_global(f32, n), o = b.add_global(f32, n);
  const Symbol p = b.new_axis(1);
  b.set_parallel(p, 1);
  const Symbol i = b.new_axis(n);
  b.begin_for(i, n, ForStmt::Kind::Vector);
  const Scalar a = b.apply(ScalarOp::Add, {b.load(x, i), b.load(y, i)});
  b.store(o, i, b.apply(ScalarOp::Max, {a, b.constant(f32, 0)}));
  b.end_for();
  const Nest nest = b.finish();
  const CompiledNest code(nest);
  for (std::int64_t count = 0; count < 200; ++count) {
    std::vector<float> va(count), vb(count), vo(count + 1, 7);
    std::iota(va.begin(), va.end(), -50.f);
    std::iota(vb.begin(), vb.end(), -20.f);
    EXPECT_EQ(code.run({va.data(), vb.data(), vo.data()}, {count}), 0);
    for (int k = 0; k < count; ++k) ASSERT_EQ(vo[k], std::max(va[k] + vb[k], 0.f));
    ASSERT_EQ(vo[count], 7);
  }
}
}  // namespace
}  // namespace heddle::jit
