// Where custom ops overwrite what they write, and where a copy is made first.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/api/custom/ops.h"
#include "tests/support/json.h"

namespace hd = heddle;
using hd::test::Json;
using testing::ElementsAre;

namespace {

using heddle::test::numbers;

struct Missed {
  std::int64_t count, bytes;
  friend bool operator==(const Missed&, const Missed&) = default;
};

Missed missed(hd::Engine& engine, const std::vector<hd::Tensor>& inputs) {
  const auto plan = Json::parse(engine.plan_json(inputs))["missed_reinplace"];
  return {plan["count"], plan["bytes"]};
}

std::int64_t steps(hd::Engine& engine, const std::vector<hd::Tensor>& inputs) {
  return static_cast<std::int64_t>(Json::parse(engine.plan_json(inputs))["steps"].size());
}

hd::Engine graph(const std::string& text) {
  hd::test::accumulate();
  hd::test::increment();
  hd::test::swap();
  hd::test::scale();
  hd::EngineOptions options;
  options.threads = 1;
  return hd::parse_ir(text, options);
}

/// tt::fsin(Tensor x, Tensor(a!) out) -> ()   out = x + 1 (whatever out held)
const hd::RegisteredOp& fsin() {
  static const hd::RegisteredOp op =
      hd::register_op({.schema = "tt::fsin(Tensor x, Tensor(a!) out) -> ()",
                       .shape = {},
                       .cpu = [](const hd::KernelCall& call) {
                         for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
                           hd::test::element(call.tensor(1), k) =
                               hd::test::element(call.tensor(0), k) + 1;
                       }});
  return op;
}

}  // namespace

// A dead intermediate is overwritten; A3-01: its bytes go after the op, when nobody reads the new value.
TEST(CustomReinplace, DeadIntermediate) {
  hd::Engine engine = graph(
      "graph @main(%in: f32[4]) {\n"
      "  %x = add(%in, 1.0: f32)\n"
      "  %u, %x1 = tt::accumulate(%in, %x)\n"
      "  %n = tt::scale(%u)\n"
      "  return %n\n"
      "}\n");
  const std::vector inputs{numbers({1, 2, 3, 4})};
  EXPECT_THAT(engine.run(inputs)[0].to_doubles(), ElementsAre(4, 6, 8, 10));
  EXPECT_EQ(missed(engine, inputs), (Missed{0, 0}));
  std::string text;
  for (const hd::RunEvent& event : engine.run_trace(inputs)) {
    const char* sign = event.kind == hd::RunEvent::Kind::Alloc  ? "+"
                       : event.kind == hd::RunEvent::Kind::Free ? "-"
                                                                : "";
    text += (text.empty() ? "" : " ") + (sign + event.value);
  }
  EXPECT_EQ(text, "+x add +u tt::accumulate -x tt::scale -u");
}

// A kernel that reads a view reads what it looks at, also where the view is an output and lies in memory of its own.
TEST(CustomReinplace, AViewThatIsReturnedIsReadLater) {
  const std::string head =
      "graph @main(%in: f32[2, 2]) {\n"
      "  %t = cumsum(%in) {axis = 0}\n"
      "  %v = permute(%t) {perm = [1, 0]}\n"
      "  %n = tt::increment_(%t)\n";
  const std::vector inputs{hd::Tensor::of<float>({1, 2, 3, 4}, {2, 2})};
  for (const char* outputs : {"%m, %v", "%m"}) {
    hd::Engine engine =
        graph(head + "  %m = matmul(%v, %n)\n  return " + std::string(outputs) + "\n}\n");
    EXPECT_THAT(engine.run(inputs)[0].to_doubles(), ElementsAre(22, 31, 34, 48)) << outputs;
    EXPECT_EQ(missed(engine, inputs), (Missed{1, 16})) << outputs;
  }
  hd::Engine unread = graph(head + "  %s = tt::scale(%n)\n  return %s, %v\n}\n");
  EXPECT_THAT(unread.run(inputs)[0].to_doubles(), ElementsAre(4, 6, 10, 14));
  EXPECT_THAT(unread.run(inputs)[1].to_doubles(), ElementsAre(1, 4, 2, 6));
  EXPECT_EQ(missed(unread, inputs), (Missed{0, 0}));
}

// A custom op and then an update write the bytes of a product, which lie in an output: the checker of plans knows it.
TEST(CustomReinplace, AnUpdateOfWhatAnOpWroteLiesInTheOutput) {
  hd::test::increment();
  hd::Engine engine = hd::parse_ir(
      "graph @main(%x: f32[2, 2], %i: i64[1], %v: f32[1, 2]) {\n"
      "  %t = matmul(%x, %x)\n"
      "  %n = tt::increment_(%t)\n"
      "  %m = tt::increment_(%n)\n"
      "  %u = index_put(%m, %v, %i)\n"
      "  return %u\n}\n",
      {.threads = 1, .check_plans = true});
  const std::vector inputs{hd::Tensor::of<float>({1, 2, 3, 4}, {2, 2}),
                           hd::Tensor::of<std::int64_t>({1}, {1}),
                           hd::Tensor::of<float>({5, 6}, {1, 2})};
  EXPECT_THAT(engine.run(inputs)[0].to_doubles(), ElementsAre(9, 12, 5, 6));
  EXPECT_EQ(missed(engine, inputs), (Missed{0, 0}));
  EXPECT_EQ(engine.stats().in_place, 3u);
}

// A2-13, value semantics: one copy, and the results are independent.
TEST(CustomReinplace, TwoBasesInTheSameBytes) {
  hd::Engine engine = graph(
      "graph @main(%in: f32[2]) {\n"
      "  %t = add(%in, 1.0: f32)\n"
      "  %a, %b = tt::swap(%t, %t)\n"
      "  %c, %d = tt::accumulate(%in, %a)\n"
      "  %y = sub(%b, %d)\n"
      "  return %y\n"
      "}\n");
  const std::vector inputs{numbers({1, 5})};
  EXPECT_EQ(missed(engine, inputs), (Missed{1, 8}));
  EXPECT_THAT(engine.run(inputs)[0].to_doubles(), ElementsAre(-1, -5));
}

// A2-13, the program's own call: one base, no copy, and both arguments are the same bytes.
TEST(CustomReinplace, TheSameTensorTwice) {
  static const hd::RegisteredOp both =
      hd::register_op({.schema = "tt::both(Tensor(a!) x, Tensor(b!) y) -> ()",
                       .shape = {},
                       .cpu = [](const hd::KernelCall& call) {
                         EXPECT_EQ(call.tensor(0).data, call.tensor(1).data);
                         for (std::int64_t k = 0; k < call.tensor(0).count(); ++k) {
                           hd::test::element(call.tensor(0), k) += 1;
                           hd::test::element(call.tensor(1), k) *= 10;
                         }
                       }});
  hd::Engine engine([](const hd::Tensor& x) {
    const hd::Tensor t = x + 1.0f;
    both(t, t);
    return t * 1.5f;
  });
  const std::vector inputs{numbers({1, 2})};
  EXPECT_THAT(engine.run(inputs)[0].to_doubles(), ElementsAre(45, 60));
  EXPECT_EQ(missed(engine, inputs), (Missed{0, 0}));
}

namespace {

/// tt::each_(Tensor(a!)[] parts) -> ()   part k += 10^k
const hd::RegisteredOp& each() {
  static const hd::RegisteredOp op =
      hd::register_op({.schema = "tt::each_(Tensor(a!)[] parts) -> ()",
                       .shape = {},
                       .cpu = [](const hd::KernelCall& call) {
                         float number = 1;
                         for (const hd::KernelTensor& part : call.list(0)) {
                           for (std::int64_t k = 0; k < part.count(); ++k)
                             hd::test::element(part, k) += number;
                           number *= 10;
                         }
                       }});
  return op;
}

}  // namespace

// A2-14: a list of views of one base that is written back.
TEST(CustomReinplace, ListOfViewsOfAnInput) {
  const hd::RegisteredOp& write_each = each();
  hd::Engine engine([&](const hd::Tensor& b) {
    write_each(std::vector{hd::slice(b, 0, 0, 1), hd::slice(b, 0, 1, 2)});
    return b * 2.0f;
  });
  const hd::Tensor b = numbers({1, 2});
  EXPECT_EQ(missed(engine, {b}), (Missed{0, 0}));
  EXPECT_THAT(engine.run({b})[0].to_doubles(), ElementsAre(4, 24));
  EXPECT_THAT(b.to_doubles(), ElementsAre(2, 12));
}

// A2-14, value semantics: both members are copied out of the bytes that they share before they are written; that is one
// argument that was missed, of 8 bytes.
TEST(CustomReinplace, ListOfViewsInValueSemantics) {
  each();
  const auto text = [](const std::string& write_back) {
    return "graph @main(%b: f32[2]) {\n"
           "  %p = slice(%b) {start = [0], limit = [1], stride = [1]}\n"
           "  %q = slice(%b) {start = [1], limit = [2], stride = [1]}\n"
           "  %m, %n = tt::each_(%p, %q) {_lists = [2]}\n"
           "  %c = concat(%m, %n) {axis = 0}\n" +
           write_back + "  return %c\n}\n";
  };
  for (const bool is_state : {false, true}) {
    hd::Engine engine = graph(text(is_state ? "  write_back %b = %c\n" : ""));
    const hd::Tensor b = numbers({1, 2});
    EXPECT_EQ(missed(engine, {b}), (Missed{1, 8}));
    EXPECT_EQ(engine.stats().missed_in_place, 1u);
    EXPECT_EQ(engine.stats().missed_in_place_bytes, 8u);
    std::string copies;
    for (const hd::RunEvent& event : engine.run_trace(std::vector{b}))
      if (event.kind == hd::RunEvent::Kind::Alloc)
        copies += event.value + " " + std::to_string(event.bytes) + " ";
    EXPECT_EQ(copies, "p 4 q 4 ");
    const hd::Tensor fresh = numbers({1, 2});
    EXPECT_THAT(engine.run({fresh})[0].to_doubles(), ElementsAre(2, 12));
    if (is_state)
      EXPECT_THAT(fresh.to_doubles(), ElementsAre(2, 12));
    else
      EXPECT_THAT(fresh.to_doubles(), ElementsAre(1, 2));
  }
}

// A2-15: what repeats its elements is never overwritten.
TEST(CustomReinplace, ExpandedOperand) {
  hd::Engine engine = graph(
      "graph @main(%in: f32[1]) {\n"
      "  %t = add(%in, 1.0: f32)\n"
      "  %e = expand(%t) {sizes = [3]}\n"
      "  %y = tt::increment_(%e)\n"
      "  %z = add(%y, %t)\n"
      "  return %z\n"
      "}\n");
  EXPECT_THAT(engine.run({numbers({1})})[0].to_doubles(), ElementsAre(5, 5, 5));
  EXPECT_EQ(missed(engine, {numbers({1})}), (Missed{1, 12}))
      << "the three elements are written out";
  EXPECT_EQ(engine.stats().in_place, 0u);
  const auto& increment = hd::test::increment();
  hd::Engine traced([&](const hd::Tensor& x) { return increment(hd::expand(x + 1.0f, {3}))[0]; });
  EXPECT_THROW(traced.run({numbers({1})}), hd::MutationError);
}

// A2-16
TEST(CustomReinplace, OldValueIsReadLater) {
  fsin();
  hd::Engine engine = graph(
      "graph @main(%x: f32[3]) {\n"
      "  %out = add(%x, 5.0: f32)\n"
      "  %n = tt::fsin(%x, %out)\n"
      "  %y = mul(%out, %n)\n"
      "  return %n, %y\n"
      "}\n");
  const std::vector inputs{numbers({1, 2, 3})};
  EXPECT_EQ(missed(engine, inputs), (Missed{1, 12}));
  const auto outs = engine.run(inputs);
  EXPECT_THAT(outs[0].to_doubles(), ElementsAre(2, 3, 4));
  EXPECT_THAT(outs[1].to_doubles(), ElementsAre(12, 21, 32));
}

// A2-17
TEST(CustomReinplace, ChainOnAnInputThatIsWrittenBackAndReturned) {
  const auto& op = fsin();
  hd::Engine engine([&](const hd::Tensor& x, const hd::Tensor& o) {
    op(x, o);
    op(o, o);
    op(o, o);
    return o;
  });
  const hd::Tensor o = numbers({0, 0});
  const std::vector inputs{numbers({1, 2}), o};
  EXPECT_EQ(missed(engine, inputs), (Missed{0, 0}));
  EXPECT_EQ(steps(engine, inputs), 4);  // three calls, and a copy to the result
  EXPECT_THAT(engine.run(inputs)[0].to_doubles(), ElementsAre(4, 5));
  EXPECT_THAT(o.to_doubles(), ElementsAre(4, 5));
}

// A2-20: an absent written argument has no new value; strides of a transposed one are kept.
TEST(CustomReinplace, AbsentAndTransposed) {
  static const hd::RegisteredOp op = hd::register_op(
      {.schema = "tt::maybe(Tensor(a!) x, Tensor(b!)? y) -> Tensor",
       .shape = [](const hd::ShapeCall& call) { return std::vector{call.tensor(0)}; },
       .cpu =
           [](const hd::KernelCall& call) {
             EXPECT_FALSE(call.tensor(1).present);
             EXPECT_THAT(call.tensor(0).strides(), ElementsAre(1, 2));
             for (std::int64_t k = 0; k < call.tensor(0).count(); ++k) {
               hd::test::element(call.results[0], k) = hd::test::element(call.tensor(0), k);
               hd::test::element(call.tensor(0), k) = static_cast<float>(k);
             }
           }});
  hd::Engine engine([](const hd::Tensor& x) {
    const hd::Tensor kept = x + 0.5f;
    const hd::Tensor old = kept * 1.0f;
    const hd::Tensor result = op(hd::transpose(kept, 0, 1), nullptr)[0];
    return std::vector{result, kept, old};
  });
  const auto outs = engine.run({hd::Tensor::of<float>({1, 2, 3, 4}, {2, 2})});
  EXPECT_THAT(outs[0].to_doubles(), ElementsAre(1.5, 3.5, 2.5, 4.5));
  EXPECT_THAT(outs[1].to_doubles(), ElementsAre(0, 2, 1, 3));
  EXPECT_THAT(outs[2].to_doubles(), ElementsAre(1.5, 2.5, 3.5, 4.5));
}

// A3-10: two calls that write the same two inputs: nothing is allocated but results, and nothing copied.
TEST(CustomReinplace, InputsAreWrittenWithoutTemporaries) {
  static const hd::RegisteredOp foo = hd::register_op(
      {.schema = "tt::foo(Tensor q, Tensor(a!) k, Tensor(b!) v) -> Tensor",
       .shape = [](const hd::ShapeCall& call) { return std::vector{call.tensor(0)}; },
       .cpu =
           [](const hd::KernelCall& call) {
             for (std::int64_t n = 0; n < call.tensor(0).count(); ++n) {
               hd::test::element(call.tensor(1), n) += 1;
               hd::test::element(call.tensor(2), n) += 2;
               hd::test::element(call.results[0], n) =
                   hd::test::element(call.tensor(1), n) + hd::test::element(call.tensor(2), n);
             }
           }});
  hd::EngineOptions options;
  options.threads = 1;
  hd::Engine engine(
      [](const hd::Tensor& q, const hd::Tensor& k, const hd::Tensor& v) {
        const hd::Tensor first = foo(q, k, v)[0];
        return first + foo(q, k, v)[0];
      },
      options);
  const hd::Tensor k = numbers({1, 1});
  const hd::Tensor v = numbers({10, 10});
  const std::vector inputs{numbers({0, 0}), k, v};
  EXPECT_EQ(missed(engine, inputs), (Missed{0, 0}));
  std::int64_t taken = 0;
  for (const hd::RunEvent& event : engine.run_trace(inputs))
    taken += event.kind == hd::RunEvent::Kind::Alloc ? 1 : 0;
  EXPECT_EQ(taken, 2);  // the results of foo
  EXPECT_EQ(steps(engine, inputs), 3);
  EXPECT_THAT(k.to_doubles(), ElementsAre(3, 3));
  EXPECT_THAT(v.to_doubles(), ElementsAre(14, 14));
  EXPECT_THAT(engine.run(inputs)[0].to_doubles(), testing::Each(4 + 16 + 5 + 18));
}

// Constants and parameters are copied in every run, never overwritten.
TEST(CustomReinplace, ConstantsStay) {
  hd::Engine engine = graph(
      "graph @main(%in: f32[2]) {\n"
      "  %c = const [10.0, 20.0]: f32\n"
      "  %old, %new = tt::accumulate(%in, %c)\n"
      "  return %old, %new\n"
      "}\n");
  for (int run = 0; run < 3; ++run) {
    const auto outs = engine.run({numbers({1, 2})});
    EXPECT_THAT(outs[0].to_doubles(), ElementsAre(10, 20));
    EXPECT_THAT(outs[1].to_doubles(), ElementsAre(11, 22));
  }
  hd::Engine inner = graph(
      "graph @main(%in: f32[2]) {\n"
      "  %c = const [10.0, 20.0]: f32\n"
      "  %old, %new = tt::accumulate(%in, %c)\n"
      "  %y = add(%old, %new)\n"
      "  return %y\n"
      "}\n");
  for (int run = 0; run < 3; ++run)
    EXPECT_THAT(inner.run({numbers({1, 2})})[0].to_doubles(), ElementsAre(21, 42));
}

// What is overwritten and what is copied first counts in branches too, of custom ops and of ours; bytes where they are known.
TEST(CustomReinplace, StatsCountBranchesAndEveryOp) {
  hd::Engine engine = graph(
      "graph @main(%p: bool[], %in: f32[3], %i: i64[1], %n: f32[s0]) {\n"
      "  %c, %d = cond(%p, %in, %i, %n) {then = @yes, else = @no}\n"
      "  %t = add(%n, 1.0: f32)\n"
      "  %o = tt::increment_(%t)\n"
      "  %r = add(%o, %t)\n"
      "  return %c, %d, %r\n}\n"
      "graph @yes(%x: f32[3], %i: i64[1], %n: f32[s0]) {\n"
      "  %t = add(%x, 5.0: f32)\n"
      "  %o = tt::increment_(%t)\n"
      "  %r = mul(%o, %t)\n"
      "  %m = neg(%n)\n"
      "  return %r, %m\n}\n"
      "graph @no(%x: f32[3], %i: i64[1], %n: f32[s0]) {\n"
      "  %t = cos(%x)\n"
      "  %v = slice(%x) {start = [0], limit = [1], stride = [1]}\n"
      "  %u = index_put(%t, %v, %i)\n"
      "  %w = index_put(%u, %v, %i)\n"
      "  %r = mul(%u, %w)\n"
      "  %m = tt::increment_(%n)\n"
      "  return %r, %m\n}\n");
  const std::vector inputs{hd::Tensor::full(hd::boolean, {}, 1), numbers({1, 2, 3}),
                           hd::Tensor::full(hd::i64, {1}, 0), numbers({4, 5})};
  const auto outputs = engine.run(inputs);
  EXPECT_THAT(outputs[0].to_doubles(), ElementsAre(42, 56, 72));
  EXPECT_THAT(outputs[2].to_doubles(), ElementsAre(11, 13));
  const hd::EngineStats stats = engine.stats();
  EXPECT_EQ(stats.in_place, 1u) << "%u";
  EXPECT_EQ(stats.missed_in_place, 4u) << "%o twice, %w, and %m, whose argument is the caller's";
  EXPECT_EQ(stats.missed_in_place_bytes, 12u + 12u) << "f32[3] twice; f32[s0] is not known";
  EXPECT_EQ(missed(engine, inputs), (Missed{1, 8})) << "%o of the plan itself, with two elements";
}
