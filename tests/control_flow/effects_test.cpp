// Ops with effects: they run once and in the order of the program, whoever reads their results, marked or not,
// and in bodies that return no tensors.
#include <gmock/gmock.h>
#include <mutex>

#include "tests/control_flow/support.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using testing::flag;
using ::testing::IsEmpty;
using testing::nodes_of;
using testing::numbers;
using testing::traced;

/// What the kernels of fx::note and fx::mark noted since the last call of noted().
std::mutex notes_lock;
std::vector<std::int64_t> notes;

std::vector<std::int64_t> noted() {
  const std::lock_guard lock(notes_lock);
  return std::exchange(notes, {});
}

void note(const KernelCall& call) {
  const std::lock_guard lock(notes_lock);
  notes.push_back(call.integer("tag"));
}

///   fx::note(Tensor x, int tag) -> Tensor   gives x, notes the tag
///   fx::pure(Tensor x, int tag) -> Tensor   the same, said to be pure
///   fx::mark(Tensor x, int tag) -> ()       notes the tag
void register_ops() {
  static const bool done = [] {
    for (const bool pure : {false, true})
      register_op(
          {.schema = std::string(pure ? "fx::pure" : "fx::note") + "(Tensor x, int tag) -> Tensor",
           .shape =
               [](const ShapeCall& call) {
                 return std::vector{TensorType{call.tensor(0).dtype, call.tensor(0).sizes}};
               },
           .cpu =
               [](const KernelCall& call) {
                 note(call);
                 for (std::int64_t k = 0; k < call.tensor(0).count(); ++k)
                   call.results[0].as<float>()[k] = call.tensor(0).as<float>()[k];
               },
           .pure = pure});
    register_op({.schema = "fx::mark(Tensor x, int tag) -> ()",
                 .shape = [](const ShapeCall&) { return std::vector<TensorType>(); },
                 .cpu = note,
                 .pure = false});
    return true;
  }();
  EXPECT_TRUE(done);
}

void mark(const Tensor& x, std::int64_t tag) { apply("fx::mark", {{x}}, {{"tag", tag}}); }
Tensor note(const Tensor& x, std::int64_t tag) {
  return apply("fx::note", {{x}}, {{"tag", tag}})[0];
}

/// Every way to run a program, with the name that a failure shows.
std::vector<std::pair<std::string, EngineOptions>> ways() {
  std::vector<std::pair<std::string, EngineOptions>> ways;
  ways.emplace_back("reference", EngineOptions{.device = Device::reference()});
  for (const int threads : {1, 3}) {
    for (const CompileScope scope :
         {CompileScope::Whole, CompileScope::Annotated, CompileScope::Unmarked}) {
      EngineOptions options{.threads = threads};
      options.scope = scope;
      ways.emplace_back("scope " + std::to_string(static_cast<int>(scope)) + ", threads " +
                            std::to_string(threads),
                        std::move(options));
    }
  }
  return ways;
}

/// Runs `f` every way; each must note `wanted`, in that order.
template <typename F>
void expect_notes(F f, const std::vector<Tensor>& inputs, const std::vector<std::int64_t>& wanted) {
  register_ops();
  for (const auto& [name, options] : ways()) {
    Engine engine(f, options);
    for (int repeat = 0; repeat < 2; ++repeat) {
      noted();
      engine.run(inputs);
      EXPECT_EQ(noted(), wanted) << name;
    }
  }
}

void expect_notes_of(const std::string& text, const std::vector<Tensor>& inputs,
                     const std::vector<std::int64_t>& wanted) {
  register_ops();
  for (const auto& [name, options] : ways()) {
    Engine engine = parse_ir(text, options);
    noted();
    engine.run(inputs);
    EXPECT_EQ(noted(), wanted) << name;
  }
}

TEST(Effects, AMarkedNodeThatNobodyReadsRuns) {
  for (const char* op : {"fx::note", "fx::mark"})
    expect_notes_of("graph @main(%x: f32[s0]) {\n  %n = " + std::string(op) +
                        "(%x) {tag = 7} @{compile = \"r\"}\n  %y = exp(%x)\n  return %y\n}\n",
                    {numbers({1, 2})}, {7});
}

TEST(Effects, ARegionOfNothingButEffectsIsNamedAndHasAToken) {
  register_ops();
  const auto f = [](const Tensor& x) {
    const Annotate region{{"compile", "r"}};
    mark(x, 1);
    mark(x, 2);
    exp(x);
    return x + 1;
  };
  Engine engine(f);
  EXPECT_THAT(engine.run({numbers({1})})[0].to_doubles(), ElementsAre(2));
  EXPECT_THAT(noted(), ElementsAre(1, 2));
  EXPECT_EQ(engine.stats().regions_compiled, 1u);
}

TEST(Effects, MarkedOnesStayInOrderWithOthers) {
  expect_notes(
      [](const Tensor& x) {
        mark(x, 1);
        {
          const Annotate region{{"compile", "r"}};
          mark(x, 2);
          note(x, 3);
        }
        mark(x, 4);
        {
          const Annotate region{{"compile", "q"}};
          note(x, 5);
        }
        return note(x, 6);
      },
      {numbers({1, 2, 3})}, {1, 2, 3, 4, 5, 6});
}

TEST(Effects, AMarkedNodeInABranchRuns) {
  const auto f = [](const Tensor& p, const Tensor& x) {
    return cond(
        p,
        [&] {
          {
            const Annotate region{{"compile", "r"}};
            mark(x, 2);
          }
          mark(x, 3);
          return x * 2.0f;
        },
        [&] {
          const Annotate region{{"compile", "r"}};
          note(x, 4);
          return x * 3.0f;
        });
  };
  expect_notes(f, {flag(true), numbers({1})}, {2, 3});
  expect_notes(f, {flag(false), numbers({1})}, {4});
}

TEST(Effects, MarkedCallsThatNobodyReadsRun) {
  expect_notes(
      [](const Tensor& p, const Tensor& x) {
        mark(x, 1);
        {
          const Annotate region{{"compile", "r"}};
          cond(p, [&] { return note(x, 2); }, [&] { return note(x, 9); });
          invoke({}, [](const Tensor& y) { return note(y, 3); }, x);
          while_loop(
              std::pair(Tensor::scalar_int(i64, 0), x),
              [](const auto& state) { return less(state.first, 2); },
              [](const auto& state) { return std::pair(state.first + 1, note(state.second, 4)); });
          map([](const Tensor& row) { return note(row, 5); }, x);
        }
        mark(x, 6);
        return x + 1.0f;
      },
      {flag(true), numbers({1, 2})}, {1, 2, 3, 4, 4, 5, 5, 6});
}

TEST(Effects, ABranchWithoutResultsRunsInItsPlace) {
  const auto f = [](const Tensor& p, const Tensor& x) {
    mark(x, 1);
    cond(
        p,
        [&] {
          mark(x, 2);
          return 0;
        },
        [&] {
          mark(x, 3);
          return 0;
        });
    mark(x, 4);
    return x + 1.0f;
  };
  expect_notes(f, {flag(true), numbers({1, 2})}, {1, 2, 4});
  expect_notes(f, {flag(false), numbers({1, 2})}, {1, 3, 4});
}

TEST(Effects, ABodyWithoutResultsRunsInItsPlace) {
  expect_notes(
      [](const Tensor& x) {
        mark(x, 1);
        invoke(
            {},
            [](const Tensor& y) {
              mark(y, 2);
              return std::string("none");
            },
            x);
        mark(x, 3);
        return x + 1.0f;
      },
      {numbers({1, 2})}, {1, 2, 3});
}

TEST(Effects, ALoopWithoutResultsRunsInItsPlace) {
  expect_notes(
      [](const Tensor& x) {
        mark(x, 1);
        map(
            [](const Tensor& row) {
              mark(row, 2);
              return 0;
            },
            x);
        mark(x, 3);
        return x + 1.0f;
      },
      {numbers({1, 2})}, {1, 2, 2, 3});
}

TEST(Effects, ACallWithoutResultsOrdersInText) {
  expect_notes_of(R"(graph @main(%p: bool[], %x: f32[2]) {
  %a = fx::mark(%x) {tag = 1}
  %c = cond(%p, %x) {then = @yes, else = @no} after(%a)
  %i = invoke(%x) {body = @unit} after(%c)
  %s = fx::mark(%x) {tag = 5} after(%i)
  %y = exp(%x)
  return %y
}
graph @yes(%x: f32[2]) {
  %n = fx::mark(%x) {tag = 2}
  return
}
graph @no(%x: f32[2]) {
  return
}
graph @unit(%x: f32[2]) {
  %n = fx::mark(%x) {tag = 4}
  return
}
)",
                  {flag(true), numbers({1, 2})}, {1, 2, 4, 5});
}

TEST(Effects, AWrittenRegionWithoutResultsRunsAndOrders) {
  register_ops();
  Engine engine = parse_ir(R"(graph @main(%x: f32[2]) {
  %r = region(%x) {body = @unit} @{compile = "r"}
  %s = fx::mark(%x) {tag = 5} after(%r)
  %y = exp(%x)
  return %y, %r
}
graph @unit(%x: f32[2]) {
  %n = fx::mark(%x) {tag = 4}
  return
}
)",
                           {.threads = 3});
  noted();
  const std::vector<Tensor> results = engine.run({numbers({1, 2})});
  EXPECT_THAT(noted(), ElementsAre(4, 5));
  EXPECT_THAT(results[1].sizes(), ElementsAre(0));
}

// After a view means after what it looks at, though nobody reads the view.
TEST(Effects, OrderOntoAViewThatNobodyReadsIsKept) {
  for (const bool marked : {false, true})
    expect_notes(
        [marked](const Tensor& x, const Tensor& y) {
          Tensor t;
          Tensor u;
          {
            const Annotate region{
                {"compile", marked ? AnnotationValue("r") : AnnotationValue(false)}};
            u = apply("fx::pure", {{x}}, {{"tag", std::int64_t{1}}})[0];
            t = reshape(u, std::vector<SymInt>{1, -1});
          }
          const Tensor v = after({permute(t, {1, 0})}, [&] {
            return apply("fx::pure", {{y}}, {{"tag", std::int64_t{2}}})[0];
          });
          return std::pair(v, u);
        },
        {numbers({1, 2}), numbers({3, 4})}, {1, 2});
}

TEST(Effects, PureCallsWithoutResultsGoAndAllPassesTakeThem) {
  const auto f = [](const Tensor& p, const Tensor& x) {
    cond(p, [&] { return (sin(x), 1); }, [&] { return 1; });
    return x + 1.0f;
  };
  EXPECT_THAT(nodes_of(traced(f, {flag(true), numbers({1})}), "cond"), ::testing::SizeIs(1));
  Engine engine(f);
  const std::vector<Tensor> inputs{flag(true), numbers({1})};
  EXPECT_THAT(nodes_of(ir::parse(engine.graph_text(inputs)), "cond"), IsEmpty());
  Engine unoptimised(f, {.skip_passes = {"dce"}});
  EXPECT_THAT(unoptimised.run(inputs)[0].to_doubles(), ElementsAre(2));
}

}  // namespace
}  // namespace heddle
