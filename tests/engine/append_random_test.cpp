// Graphs that append to their inputs in many ways, against the same graphs whose caches are copied: integers, so that all is exact.
#include <gtest/gtest.h>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "heddle/heddle.h"

namespace hd = heddle;

namespace {

/// Caches %c0 … of [2, n, 3] with n of their own along axis 1, or of [n, 2, 3] along axis 0, with what is made of them.
class RandomGraph {
 public:
  explicit RandomGraph(unsigned seed) : random_(seed) {
    const int caches = 1 + below(3);
    for (int k = 0; k < caches; ++k) add_cache(k);
    text_ =
        "graph @main(%x: i64[2, 3]" + inputs_ + ") {\n" + body_ + "  return " + results_ + "\n}\n";
  }

  const std::string& text() const { return text_; }
  const std::set<std::string>& names() const { return names_; }
  /// Of cache k, with so many in it.
  hd::Sizes sizes(std::size_t k, std::int64_t length) const {
    return axes_[k] == 1 ? hd::Sizes{2, length, 3} : hd::Sizes{length, 2, 3};
  }
  std::int64_t axis(std::size_t k) const { return axes_[k]; }
  std::size_t caches() const { return axes_.size(); }
  int below(int count) { return static_cast<int>(random_() % static_cast<unsigned>(count)); }

 private:
  void line(const std::string& text) { body_ += "  " + text + "\n"; }
  void result(const std::string& value) { results_ += (results_.empty() ? "" : ", ") + value; }

  void add_cache(int k) {
    const std::string n = std::to_string(k), c = "%c" + n;
    const int axis = below(2);
    axes_.push_back(axis);
    names_.insert("c" + n);
    inputs_ += ", " + c + ": i64" + (axis == 1 ? "[2, s" + n + ", 3]" : "[s" + n + ", 2, 3]");
    const std::string along = " {axis = " + std::to_string(axis) + "}";
    const std::string sums = " {axes = [" + std::to_string(axis) + "], keepdims = true}";
    line("%x" + n + " = reshape(%x) {sizes = " + (axis == 1 ? "[2, 1, 3]" : "[1, 2, 3]") + "}");
    const bool reads_before = below(3) == 0, of_itself = below(3) == 0, reads_after = below(4) == 0;
    if (reads_before) {
      line("%before" + n + " = reduce_sum(" + c + ")" + sums);
      result("%before" + n);
    }
    // What is appended may be made of what is there.
    if (of_itself) {
      line("%t" + n + " = reduce_sum(" + c + ")" + sums);
      line("%new" + n + " = add(%x" + n + ", %t" + n + ")");
    } else {
      line("%new" + n + " = mul(%x" + n + ", " + std::to_string(2 + below(3)) + ": i64)");
    }
    const std::string two = below(3) == 0 ? ", %x" + n : "";
    line("%all" + n + " = concat(" + c + ", %new" + n + two + ")" + along);
    if (below(2) == 0) result("%all" + n);
    line("%sum" + n + " = reduce_sum(%all" + n + ")" + sums);
    line("%weighed" + n + " = mul(%all" + n + ", %all" + n + ")");
    line("%most" + n + " = reduce_max(%weighed" + n + ")" + sums);
    result("%sum" + n);
    result("%most" + n);
    if (reads_after) {
      line("%after" + n + " = sub(%sum" + n + ", " + c + ")");
      result("%after" + n);
    }
    result("%all" + n);  // perhaps once more
  }

  std::mt19937 random_;
  std::string text_, inputs_, body_, results_;
  std::set<std::string> names_;
  std::vector<std::int64_t> axes_;
};

hd::Tensor filled(hd::Sizes sizes, std::int64_t first) {
  hd::Tensor x = hd::Tensor::empty(hd::i64, std::move(sizes));
  for (std::int64_t k = 0; k < x.count(); ++k) x.data_as<std::int64_t>()[k] = (first + k * 7) % 11;
  return x;
}

/// Tensors of some call, in memory with room and copied.
struct State {
  std::vector<hd::Tensor> caches, copies;
};

void check(unsigned seed) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  RandomGraph graph(seed);
  SCOPED_TRACE(graph.text());
  hd::EngineOptions options;
  options.append = graph.names();
  hd::Engine engine = hd::parse_ir(graph.text(), options);
  hd::Engine plain = hd::parse_ir(graph.text());
  State start;
  for (std::size_t k = 0; k < graph.caches(); ++k) {
    start.caches.push_back(filled(graph.sizes(k, graph.below(4)), static_cast<std::int64_t>(k)));
    start.copies.push_back(start.caches.back().clone());
  }
  std::vector<State> states{start};
  for (int call = 0; call < 30; ++call) {
    // From any state that is still there, often the last one; sometimes one is dropped or cut back.
    const int from = graph.below(3) != 0 ? static_cast<int>(states.size()) - 1
                                         : graph.below(static_cast<int>(states.size()));
    const State& state = states[static_cast<std::size_t>(from)];
    const hd::Tensor x = filled({2, 3}, call);
    std::vector<hd::Tensor> given{x}, wanted{x};
    given.insert(given.end(), state.caches.begin(), state.caches.end());
    wanted.insert(wanted.end(), state.copies.begin(), state.copies.end());
    const auto got = engine.run(given);
    const auto want = plain.run(wanted);
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t k = 0; k < got.size(); ++k) {
      ASSERT_TRUE(std::ranges::equal(got[k].sizes(), want[k].sizes())) << k;
      ASSERT_EQ(got[k].to_doubles(), want[k].to_doubles()) << "output " << k << " of call " << call;
    }
    State next;
    const auto outputs = engine.signature().outputs;
    for (std::size_t c = 0; c < graph.caches(); ++c)
      for (std::size_t k = got.size(); k-- > 0;) {
        if (outputs[k].lies_in != "c" + std::to_string(c)) continue;
        next.caches.push_back(got[k]);
        next.copies.push_back(want[k]);
        break;
      }
    ASSERT_EQ(next.caches.size(), graph.caches());
    if (graph.below(6) == 0)
      for (std::size_t c = 0; c < graph.caches(); ++c) {
        const std::int64_t axis = graph.axis(c);
        const std::int64_t length = next.caches[c].sizes()[static_cast<std::size_t>(axis)];
        const std::int64_t less = graph.below(static_cast<int>(length) + 1);
        next.caches[c] = next.caches[c].narrow(axis, 0, less);
        next.copies[c] = next.copies[c].narrow(axis, 0, less).clone();
      }
    if (graph.below(4) == 0 && states.size() > 1)
      states.erase(states.begin() + graph.below(static_cast<int>(states.size())));
    states.push_back(std::move(next));
  }
  // Nobody wrote to what somebody held.
  for (const State& state : states)
    for (std::size_t c = 0; c < graph.caches(); ++c)
      ASSERT_EQ(state.caches[c].to_doubles(), state.copies[c].to_doubles());
}

TEST(Append, RandomGraphsAndCalls) {
  for (unsigned seed = 0; seed < 120 && !testing::Test::HasFatalFailure(); ++seed) check(seed);
}

}  // namespace
