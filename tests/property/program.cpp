#include "tests/property/program.h"

#include <functional>
#include <optional>
#include <random>

#include "tests/api/custom/ops.h"
#include "tests/property/program_ops.h"

namespace heddle::property {

namespace {

/// One trace of a program.
class Author {
 public:
  Author(std::uint32_t seed, Features& features, std::set<std::string>& twins)
      : random_(seed * 2654435761u + 99u), features_(features), twins_(twins) {}

  std::vector<Tensor> write(const Tensor& x, const Tensor& y) {
    pool_ = {x, y, x + y};
    const int length = 4 + below(11);
    for (int k = 0; k < length; ++k) scoped([&] { step(); });
    if (chance(15)) {
      used("state");
      assign(below(2) == 0 ? x : y, bounded(like_x(pick())));
    }
    std::vector<Tensor> results = std::move(kept_);
    const int more = 1 + below(3);
    for (int k = 0; k < more; ++k) results.push_back(pick());
    return results;
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  bool chance(int percent) { return below(100) < percent; }
  void used(const char* feature) { ++features_[feature]; }
  /// A feature of the half of the programs that have effects at all.
  bool effect_chance(int percent) { return has_effects_ && chance(percent); }
  Tensor pick() { return pool_[static_cast<std::size_t>(below(static_cast<int>(pool_.size())))]; }

  /// Numbers that stay whole and small.
  static Tensor bounded(const Tensor& x) { return clamp(x, -64.0, 64.0); }
  /// A view or a copy of `x` with the sizes of the inputs.
  static Tensor like_x(const Tensor& x) { return x; }

  /// Runs `body` under random scopes.
  void scoped(const std::function<void()>& body) {
    std::optional<Annotate> scope;
    const int kind = below(10);
    if (kind < 4) {
      used("region");
      scope.emplace(mark_of_region());
    } else if (kind == 4) {
      used("fallback");
      scope.emplace(AnnotationMap{{"should_fallback", true}});
    } else if (kind == 5) {
      used("name");
      scope.emplace(AnnotationMap{{"name", "block"}, {"stage", below(3)}});
    }
    std::optional<AfterScope> after;
    if (chance(25)) {
      used("order");
      std::vector<Tensor> first{pick()};
      if (chance(30)) first.push_back(pick());
      after.emplace(first);
    }
    body();
  }

  AnnotationMap mark_of_region() {
    switch (below(6)) {
      case 0:
        return {{"compile", true}};
      case 1:
        used("region options");
        return {
            {"compile", AnnotationMap{{"id", "a"}, {"options", AnnotationMap{{"fuse", false}}}}}};
      case 2:
      case 3:
        return {{"compile", "b"}, {"stage", 1}};
      default:
        return {{"compile", "a"}};
    }
  }

  void step() {
    if (effect_chance(25)) return below(2) == 0 ? effect() : silent();
    switch (below(20)) {
      case 0:
      case 1:
      case 2:
      case 3:
        return pointwise();
      case 4:
        used("reduction");
        pool_.push_back(bounded(pick() + sum(pick(), {1}, true)));
        return;
      case 5:
      case 6:
        return notice();
      case 7:
      case 8:
        return write_argument();
      case 9:
        used("several outputs");
        pool_.push_back(bounded(test::halves()(pick())[1]));
        return;
      case 10:
        return view();
      case 11:
      case 12:
        return twin();
      case 13:
        return branch();
      case 14:
        return loop();
      case 15:
        return over_rows();
      case 16:
        return call_twice();
      case 17:
        return late();
      default:
        return notice();
    }
  }

  void pointwise() {
    used("pointwise");
    switch (below(6)) {
      case 0:
        return pool_.push_back(relu(pick()));
      case 1:
        return pool_.push_back(-pick());
      case 2:
        return pool_.push_back(maximum(pick(), pick()));
      case 3:
        return pool_.push_back(where(less(pick(), 1 + below(3)), pick(), pick()));
      default:
        return pool_.push_back(bounded(pick() + pick()));
    }
  }

  void notice() {
    used("note");
    std::optional<AfterScope> after;
    if (!noted_.empty() && chance(60)) {
      used("note after a note");
      after.emplace(
          std::vector{noted_[static_cast<std::size_t>(below(static_cast<int>(noted_.size())))]});
    }
    const Tensor from = chance(50) ? pool_[static_cast<std::size_t>(below(3))] : pick();
    noted_.push_back(note()(from, next_note_++)[0]);
    pool_.push_back(noted_.back());
    if (chance(50)) kept_.push_back(noted_.back());
  }

  /// A tensor that a custom op may write: one of the pool, or a part or a permutation of one.
  Tensor target(bool square) {
    const Tensor base = pick();
    const int kind = below(3);
    if (kind == 0 || square) return base;
    used("write through a view");
    return kind == 1 ? slice(base, 1, 1, 3) : transpose(base, 0, 1);
  }

  void write_argument() {
    used("write");
    switch (below(3)) {
      case 0:
        test::increment()(target(false));
        return;
      case 1:
        pool_.push_back(bounded(test::accumulate()(pick(), target(true))[0]));
        return;
      default:
        test::swap()(target(true), target(true));
        return;
    }
  }

  void view() {
    used("view");
    const Tensor x = pick();
    switch (below(3)) {
      case 0: {
        const Tensor rows = x.size(0) == 1 ? x : x;
        return pool_.push_back(concat({slice(rows, 1, 2, 4), slice(rows, 1, 0, 2)}, 1));
      }
      case 1:
        return pool_.push_back(transpose(relu(transpose(x, 0, 1)), 0, 1));
      default:
        return pool_.push_back(bounded(x + expand(slice(x, 1, 0, 1), {x.size(0), 4})));
    }
  }

  std::int64_t tag() { return below(1000); }

  /// An op with effects; nobody may read what it gives.
  void effect() {
    used("effect");
    switch (below(4)) {
      case 0:
        mark()(pick(), tag());
        return;
      case 1:
        used("write with an effect");
        bump()(target(false), tag());
        return;
      case 2:
        log()(pick(), tag());
        return;
      default:
        pool_.push_back(log()(pick(), tag())[0]);
        return;
    }
  }

  /// Effects of a body on `x`; what it gives, if anything, is in `x` then.
  void effects_on(Tensor& x) {
    used("effect in a body");
    std::optional<Annotate> scope;
    if (chance(30)) scope.emplace(mark_of_region());
    std::optional<AfterScope> after;
    const Tensor before = x;
    if (chance(30)) after.emplace(std::vector{relu(x)});
    if (chance(50)) mark()(before, tag());
    if (chance(50)) x = log()(before, tag())[0];
    if (chance(30)) log()(before, tag());
  }

  /// A call whose results, if it has any, nobody reads: it is there for its effects.
  void silent() {
    used("call for its effects");
    const Tensor x = pick();
    const Tensor captured = pick();
    switch (below(6)) {
      case 0:
        used("cond without results");
        cond(
            positive(pick()), [&] { return silent_body(captured); },
            [&] { return chance_in_body_ ? silent_body(x) : 0; });
        return;
      case 1:
        used("cond that nobody reads");
        cond(
            positive(pick()), [&](const Tensor& a) { return effective_body(a, captured); },
            [&](const Tensor& a) { return body(captured, a); }, x);
        return;
      case 2:
        used("while for its effects");
        while_loop(
            cast(iota({1}), f32),
            [&](const Tensor& s) {
              if (chance_in_body_) mark()(s, tag());
              return any(less(s, 1 + below(4)));
            },
            [&](const Tensor& s) {
              silent_body(captured);
              return s + 1.0;
            });
        return;
      case 3:
        used("scan without results");
        scan(std::tuple<>(), x, [&](std::tuple<>, const Tensor& row) {
          return std::pair(std::tuple<>(), silent_body(row));
        });
        return;
      case 4:
        used("map for its effects");
        map([&](const Tensor& row) { return effective_body(row, row); }, x);
        return;
      default:
        used("invoke without results");
        invoke(RegionOptions{.name = "silent"}, [&](const Tensor& a) { return silent_body(a); }, x);
        return;
    }
  }

  int silent_body(Tensor x) {
    mark()(x, tag());
    effects_on(x);
    return 0;
  }
  Tensor effective_body(Tensor a, const Tensor& b) {
    log()(b, tag());
    effects_on(a);
    return body(a, b);
  }

  /// Equal nodes under different marks, all of them read.
  void twin() {
    used("twin");
    const Tensor a = pick();
    const Tensor b = pick();
    const double number = 65 + next_note_++;  // no other node of the program is equal
    const auto one = [&] { return minimum(a - b, number); };
    const Annotate none(AnnotationMap{{"compile", false}});
    std::vector<Tensor> made{one()};
    for (const char* id : {"a", "b"}) {
      if (chance(30)) continue;
      const Annotate region(AnnotationMap{{"compile", id}});
      made.push_back(one());
      twins_.insert(id);
    }
    for (const Tensor& tensor : made) {
      kept_.push_back(tensor * 1.0);
      pool_.push_back(bounded(tensor));
    }
  }

  Tensor positive(const Tensor& x) { return greater(sum(x), below(9) - 4); }

  /// What a nested body does with its tensors.
  Tensor body(Tensor a, const Tensor& b) {
    if (effect_chance(40)) effects_on(a);
    std::optional<Annotate> scope;
    if (chance(30)) {
      used("region in a body");
      scope.emplace(mark_of_region());
    }
    std::optional<AfterScope> after;
    if (chance(20)) {
      used("order in a body");
      after.emplace(std::vector{chance(50) ? relu(a) : b});
    }
    if (chance(25)) a = written(a);
    if (depth_ < kMaxDepth && chance(30)) a = nested(a, b);
    const int kind = below(5);
    if (kind == 0) return bounded(a + b);
    if (kind == 1) return bounded(relu(a) - b);
    if (kind == 2) return maximum(-a, b);
    if (kind == 3) {
      used("late size in a body");
      return bounded(b + sum(keep()(flatten(a))[0]));
    }
    used("custom op in a body");
    return bounded(test::scale()(a, 2.0)[0] + b);
  }

  /// A tensor of the body that ops write to.
  Tensor written(const Tensor& a) {
    used("write in a body");
    Tensor local = a * 1.0;
    switch (below(4)) {
      case 0:
        test::increment()(local);
        return local;
      case 1:
        test::increment()(slice(local, local.rank() - 1, 1, 3));
        return local;
      case 2: {
        Tensor other = -a;
        test::swap()(local, other);
        return bounded(local + other * 2.0);
      }
      default:
        if (has_effects_)
          bump()(local, tag());
        else
          test::increment()(local);
        return bounded(local + test::accumulate()(a, local)[0]);
    }
  }

  /// A call in a body.
  Tensor nested(const Tensor& a, const Tensor& b) {
    used("call in a body");
    ++depth_;
    Tensor result = nested_call(a, b);
    --depth_;
    return result;
  }
  Tensor nested_call(const Tensor& a, const Tensor& b) {
    switch (below(5)) {
      case 0:
        return cond(
            positive(a), [&](const Tensor& t) { return body(t, b); },
            [&](const Tensor& t) { return body(b, t); }, a);
      case 1: {
        const auto pair = invoke(
            RegionOptions{.name = "inner"},
            [&](const Tensor& t) { return std::pair(body(t, b), relu(t) + 1.0); }, a);
        return chance(50) ? bounded(pair.first + pair.second) : pair.first;
      }
      case 2:
        return while_loop(
                   std::pair<Tensor, Tensor>(cast(iota({1}), f32), a),
                   [&](const std::pair<Tensor, Tensor>& s) { return any(less(s.first, 2)); },
                   [&](const std::pair<Tensor, Tensor>& s) {
                     return std::pair<Tensor, Tensor>(s.first + 1.0, body(s.second, b));
                   })
            .second;
      case 3:
        if (a.rank() == 2) return map([&](const Tensor& row) { return body(row, row); }, a);
        [[fallthrough]];
      default:
        if (has_effects_) cond(positive(b), [&] { return silent_body(a); }, [&] { return 0; });
        return body(a, b);
    }
  }

  void branch() {
    used("cond");
    const Tensor captured = pick();
    pool_.push_back(cond(
        positive(pick()), [&](const Tensor& a) { return body(a, captured); },
        [&](const Tensor& a) { return body(captured, a); }, pick()));
  }

  /// Tensors whose sizes only the run tells: of an op's result or of a branch, used by one another.
  void late() {
    used("late size");
    const Tensor x = pick();
    Tensor kept = keep()(flatten(x))[0];
    if (effect_chance(50)) {
      used("late size of an effect");
      kept = keep_log()(kept, tag())[0];
    }
    if (chance(40)) {
      used("late size of a late size");
      kept = keep()(bounded(kept - 1.0 * below(3)))[0];
    }
    if (chance(40)) {
      used("late branch");
      const Tensor other = flatten(pick());
      kept = cond(
          positive(pick()), [&] { return concat({kept, (other + 1.0) * (other + 1.0)}, 0); },
          [&] { return chance_in_body_ ? keep()(other)[0] : other * 2.0; });
      kept = bounded(kept);
    }
    if (chance(40)) kept = regrown(kept, x);
    if (chance(40)) {
      used("late output");
      kept_.push_back(concat({kept, flatten(x)}, 0) * 1.0);
    }
    if (chance(40)) {
      used("late size alone");
      pool_.push_back(bounded(pick() + sum(iota({kept.size(0)}, 0, f32))));
    }
    pool_.push_back(bounded(pick() + sum(kept)));
  }

  /// A loop that changes the size of what it carries, and of another value that may follow it. Bodies are traced more than once, so that
  /// what they do is drawn before.
  Tensor regrown(const Tensor& kept, const Tensor& x) {
    used("loop that grows");
    const int how = below(4);
    const int times = below(5);
    const bool follows = chance(50);
    const Tensor captured = flatten(x);
    using State = std::tuple<Tensor, Tensor, Tensor>;
    const auto [count, grown, other] = while_loop(
        State(cast(iota({1}), f32), kept, kept * 0.5),
        [&](const State& s) { return any(less(std::get<0>(s), times)); },
        [&](const State& s) {
          const auto& [number, now, beside] = s;
          const Tensor longer = how == 0   ? concat({now, captured}, 0)
                                : how == 1 ? concat({now, sum(now, {0}, true) * 0.25}, 0)
                                : how == 2 ? slice(now, 0, 0, now.size(0) / 2)
                                           : keep()(now - 0.5)[0];
          const Tensor next = bounded(longer);
          return State(number + 1.0, next, follows ? next * 2.0 : concat({beside, beside}, 0));
        });
    kept_.push_back(bounded(other + sum(grown)));
    return grown;
  }

  static Tensor flatten(const Tensor& x) { return x.rank() == 1 ? x : reshape(x, {x.size(0) * 4}); }

  /// A table of which each iteration overwrites an element, and perhaps reads another, or the table as it was.
  void updates() {
    used("loop that updates");
    const Tensor table = concat({cast(iota({4}), f32), flatten(pick())}, 0);
    const int how = below(4);
    const int times = below(4);
    using State = std::pair<Tensor, Tensor>;
    const auto next = [how](const State& s) {
      const Tensor place = reshape(s.second, {1, 1});
      const Tensor value = how == 0 ? sum(s.first, {0}, true) * 0.25
                                    : reshape(gather(s.first, reshape(s.second, {1})), {1});
      const Tensor operands[] = {s.first, place, reshape(bounded(value + 0.5), {1})};
      const Tensor made = apply("scatter_nd", operands)[0];
      return how == 2 ? maximum(made, s.first) : made;
    };
    if (how == 3) {
      const auto [last, seen] =
          scan(table, iota({times + 1}), [&](const Tensor& t, const Tensor& k) {
            const Tensor made = next({t, k});
            return std::pair(made, sum(made));
          });
      pool_.push_back(bounded(pick() + sum(last) + sum(seen)));
      return;
    }
    const State last = while_loop(
        State(table, sum(iota({1}))), [&](const State& s) { return less(s.second, times); },
        [&](const State& s) { return State(next(s), s.second + 1); });
    pool_.push_back(bounded(pick() + sum(last.first)));
    kept_.push_back(last.first);
  }

  void loop() {
    used("while");
    if (chance(40)) updates();
    const Tensor limit = pick();
    const auto [count, result] = while_loop(
        std::pair<Tensor, Tensor>(cast(iota({1}), f32), pick()),
        [&](const std::pair<Tensor, Tensor>& s) { return any(less(s.first, 1 + below(4))); },
        [&](const std::pair<Tensor, Tensor>& s) {
          return std::pair<Tensor, Tensor>(s.first + 1.0, body(s.second, limit));
        });
    pool_.push_back(result);
  }

  void over_rows() {
    used("scan");
    ScanOptions options{.reverse = below(2) == 0};
    if (below(3) == 0) {
      used("scan of some slices");
      options.count = cast(sum(iota({1 + below(5)})), i64);
    }
    const auto [carry, rows] = scan(
        sum(pick(), {0}), pick(),
        [&](const Tensor& sum, const Tensor& row) {
          const Tensor next = body(sum, row);
          return std::pair<Tensor, Tensor>(next, next - row);
        },
        options);
    pool_.push_back(bounded(rows + carry));
  }

  /// One body, called with two tensors.
  void call_twice() {
    used("invoke");
    const auto state = random_;
    for (int turn = 0; turn < 2; ++turn) {
      random_ = state;
      const Tensor a = turn == 0 ? pool_[0] : pick();
      random_ = state;
      pool_.push_back(invoke(
          RegionOptions{.name = "twice"}, [&](const Tensor& t) { return body(t, relu(t)); }, a));
    }
  }

  std::mt19937 random_;
  Features& features_;
  std::set<std::string>& twins_;
  std::vector<Tensor> pool_;
  std::vector<Tensor> noted_;  ///< results of prop::note
  std::vector<Tensor> kept_;   ///< results of the program
  std::int64_t next_note_ = 0;
  static constexpr int kMaxDepth = 2;  ///< of bodies in bodies
  int depth_ = 0;
  bool has_effects_ = random_() % 2 == 0;
  bool chance_in_body_ = random_() % 2 == 0;  ///< whether a branch finds its sizes itself
};

}  // namespace

std::vector<Tensor> Program::operator()(const Tensor& x, const Tensor& y) {
  features_.clear();
  twins_.clear();
  return Author(seed_, features_, twins_).write(x, y);
}

}  // namespace heddle::property
