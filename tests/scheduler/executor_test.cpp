#include "scheduler/executor.h"

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <tbb/info.h>
#include <thread>
#include <vector>

namespace heddle::scheduler {
namespace {

/// A step over a slice of a vector: adds one to every element.
struct Slice {
  std::vector<int>* values;
  std::int64_t first;
  std::int32_t fail_at = -1;
};

void add_one(const BoundStep& step, std::int64_t begin, std::int64_t end, int,
             std::int32_t* status) {
  const auto& slice = *static_cast<const Slice*>(step.code);
  for (std::int64_t k = begin; k < end; ++k) {
    ++(*slice.values)[static_cast<std::size_t>(slice.first + k)];
    if (k == slice.fail_at) *status = 7;
  }
}

BoundStep step_over(const Slice& slice, std::int64_t extent, std::int64_t work) {
  BoundStep step{};
  step.run = add_one;
  step.code = &slice;
  step.extent = extent;
  step.work = work;
  return step;
}

constexpr std::int64_t kBig = 10'000'000;

TEST(Executor, EveryIterationRunsOnce) {
  for (const int threads : {1, 2, 4}) {
    Executor executor(threads);
    for (const std::int64_t extent : {0, 1, 3, 1000}) {
      std::vector<int> values(2000, 0);
      const Slice a{&values, 0};
      const Slice b{&values, 1000};
      const BoundStep steps[] = {step_over(a, extent, kBig), step_over(b, extent, kBig),
                                 step_over(a, extent, 1)};
      const BoundStage stages[] = {{0, 2}, {2, 1}};
      EXPECT_EQ(executor.run(steps, stages), 0);
      for (std::int64_t k = 0; k < 1000; ++k) {
        EXPECT_EQ(values[static_cast<std::size_t>(k)], k < extent ? 2 : 0);
        EXPECT_EQ(values[static_cast<std::size_t>(1000 + k)], k < extent ? 1 : 0);
      }
    }
  }
}

/// Notes iterations in the order in which they run, from `begin` on.
void note_order(const BoundStep& step, std::int64_t begin, std::int64_t end, int, std::int32_t*) {
  auto& order = *static_cast<std::vector<std::int64_t>*>(step.request);
  for (std::int64_t k = begin; k < end; ++k) order.push_back(k);
  for (std::int64_t k = begin; k > end; --k) order.push_back(k - 1);
}

TEST(Executor, OnlyReversibleStepsRunBackwards) {
  Executor executor(1);
  std::vector<std::int64_t> order;
  BoundStep plain{.run = note_order};
  plain.extent = 3;
  plain.request = &order;
  BoundStep reversible = plain;
  reversible.is_reversible = true;
  const BoundStep steps[] = {plain, reversible};
  const BoundStage stages[] = {{0, 1}, {1, 1}};
  EXPECT_EQ(executor.run(steps, stages), 0);
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2}));
  order.clear();
  EXPECT_EQ(executor.run(steps, stages, /*backwards=*/true), 0);
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2, 2, 1, 0}));
}

TEST(Executor, EveryIterationRunsOnceBackwards) {
  Executor executor(3);
  std::vector<std::atomic<int>> counts(1000);
  BoundStep step{
      .run = [](const BoundStep& given, std::int64_t begin, std::int64_t end, int, std::int32_t*) {
        auto& all = *static_cast<std::vector<std::atomic<int>>*>(given.request);
        for (std::int64_t k = std::min(begin, end); k < std::max(begin, end); ++k)
          ++all[static_cast<std::size_t>(k)];
      }};
  step.extent = 1000;
  step.work = kBig;
  step.is_reversible = true;
  step.request = &counts;
  const BoundStage stage{0, 1};
  EXPECT_EQ(executor.run({&step, 1}, {&stage, 1}, /*backwards=*/true), 0);
  for (const auto& count : counts) ASSERT_EQ(count.load(), 1);
}

/// What each of two workers ran first; both wait there until the other has come.
struct Meeting {
  std::atomic<int> arrived{0};
  std::atomic<std::int64_t> first[2] = {-1, -1};

  void run(std::int64_t iteration, int worker) {
    if (first[worker].load() != -1) return;
    first[worker].store(iteration);
    ++arrived;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (arrived.load() < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  }
};

/// A step whose iterations are numbered from `offset` on.
BoundStep meeting_step(Meeting& meeting, std::int64_t extent, const std::int64_t* offset) {
  BoundStep step{.run = [](const BoundStep& given, std::int64_t begin, std::int64_t end, int worker,
                           std::int32_t*) {
    static_cast<Meeting*>(given.request)->run(std::min(begin, end) + given.sizes[0], worker);
  }};
  step.extent = extent;
  step.work = kBig;
  step.is_reversible = true;
  step.request = &meeting;
  step.sizes = offset;
  return step;
}

TEST(Executor, AWorkerBeginsWithTheSameShareOfEachStage) {
  Executor executor(2);
  const std::int64_t offset = 0;
  for (int turn = 0; turn < 3; ++turn) {
    Meeting meeting;
    const BoundStep step = meeting_step(meeting, 800, &offset);  // in parts of 50
    const BoundStage stage{0, 1};
    EXPECT_EQ(executor.run({&step, 1}, {&stage, 1}), 0);
    EXPECT_EQ(meeting.first[0].load(), 0);
    EXPECT_EQ(meeting.first[1].load(), 400);
  }
  Meeting meeting;
  const BoundStep step = meeting_step(meeting, 800, &offset);
  const BoundStage stage{0, 1};
  EXPECT_EQ(executor.run({&step, 1}, {&stage, 1}, /*backwards=*/true), 0);
  EXPECT_EQ(meeting.first[0].load(), 350);
  EXPECT_EQ(meeting.first[1].load(), 750);
}

/// Pieces run each iteration once, those of a worker's share from one end of it to the other, also where they are fewer than the threads.
TEST(Executor, AStageMayRunAPiece) {
  Executor executor(3);
  std::vector<std::atomic<int>> runs(1000);
  BoundStep step{
      .run = [](const BoundStep& given, std::int64_t begin, std::int64_t end, int, std::int32_t*) {
        auto& counts = *static_cast<std::vector<std::atomic<int>>*>(given.request);
        for (std::int64_t k = begin; k < end; ++k) ++counts[static_cast<std::size_t>(k)];
      }};
  step.extent = 1000;
  step.work = kBig;
  step.request = &runs;
  for (const std::uint32_t pieces : {1u, 2u, 5u, 300u, 700u, 2000u}) {
    for (std::atomic<int>& count : runs) count = 0;
    std::vector<BoundStage> stages;
    for (std::uint32_t k = 0; k < pieces; ++k) stages.push_back({0, 1, k, pieces});
    EXPECT_EQ(executor.run({&step, 1}, std::span(stages).first(pieces / 2)), 0);
    for (int worker = 0; worker < 3; ++worker)
      for (std::uint32_t k = 0; k < pieces; ++k) {
        const Iterations own = piece_of(step.extent, stages[k], worker, 3);
        for (std::int64_t at = own.begin; at < own.end; ++at)
          EXPECT_EQ(runs[static_cast<std::size_t>(at)].load(), k < pieces / 2 ? 1 : 0) << at;
      }
    EXPECT_EQ(executor.run({&step, 1}, std::span(stages).subspan(pieces / 2)), 0);
    for (std::size_t k = 0; k < runs.size(); ++k) EXPECT_EQ(runs[k].load(), 1) << k;
  }
}

TEST(Executor, SharesMeetWherePiecesBeginOrEnd) {
  constexpr std::uint32_t kPieces = 4;
  for (const int threads : {1, 2, 3, 4}) {
    const auto piece = [&](std::uint32_t k, int worker) {
      return piece_of(100, {0, 1, k, kPieces}, worker, threads);
    };
    for (int worker = 0; worker + 1 < threads; ++worker) {
      const bool at_first = piece(0, worker).end == piece(0, worker + 1).begin;
      const bool at_last = piece(kPieces - 1, worker).end == piece(kPieces - 1, worker + 1).begin;
      EXPECT_TRUE(at_first || at_last) << worker << " of " << threads;
    }
  }
}

TEST(Executor, StepsOfOneIterationHaveWorkersOfTheirOwn) {
  Executor executor(2);
  const std::int64_t offsets[] = {0, 1000};
  Meeting meeting;
  const BoundStep steps[] = {meeting_step(meeting, 1, &offsets[0]),
                             meeting_step(meeting, 1, &offsets[1])};
  const BoundStage stage{0, 2};
  EXPECT_EQ(executor.run(steps, {&stage, 1}), 0);
  EXPECT_EQ(meeting.first[0].load(), 0);
  EXPECT_EQ(meeting.first[1].load(), 1000);
}

TEST(Executor, AStatusStopsTheStagesAfterIt) {
  Executor executor(3);
  std::vector<int> values(100, 0);
  const Slice bad{&values, 0, 40};
  const Slice good{&values, 0};
  const BoundStep steps[] = {step_over(bad, 100, kBig), step_over(good, 100, kBig)};
  const BoundStage stages[] = {{0, 1}, {1, 1}};
  EXPECT_EQ(executor.run(steps, stages), 7);
  EXPECT_EQ(values[0], 1);
}

TEST(Executor, SharesOfAStepAreAllOfItsIterations) {
  for (const int threads : {1, 3, 16}) {
    Executor executor(threads);
    for (const std::int64_t extent : {0, 1, 5, 1000}) {
      std::vector<int> values(1000, 0);
      const Slice slice{&values, 0};
      const scheduler::ShareTimes times = executor.run_shares(step_over(slice, extent, kBig));
      EXPECT_EQ(times.status, 0);
      EXPECT_LE(times.longest_us, times.all_us);
      for (std::int64_t k = 0; k < 1000; ++k)
        EXPECT_EQ(values[static_cast<std::size_t>(k)], k < extent ? 1 : 0);
    }
  }
  std::vector<int> values(1000, 0);
  const Slice bad{&values, 0, 3};
  EXPECT_EQ(Executor(4).run_shares(step_over(bad, 100, kBig)).status, 7);
}

struct Loop {
  const BoundStep* body;
  int turns;
};

void run_loop(const BoundStep& step, Executor& executor, std::int32_t* status) {
  const auto& loop = *static_cast<const Loop*>(step.state);
  const BoundStage stages[] = {{0, 2}};
  for (int turn = 0; turn < loop.turns && *status == 0; ++turn)
    *status = executor.run({loop.body, 2}, stages);
}

/// Threads share the steps of a loop's body, too, on the thread that tells of them.
TEST(Executor, SharesOfALoopAreThoseOfItsBody) {
  Executor executor(8);
  std::vector<int> values(2000, 0);
  const Slice a{&values, 0};
  const Slice b{&values, 1000};
  const BoundStep body[] = {step_over(a, 1000, kBig), step_over(b, 1000, kBig)};
  Loop loop{body, 50};
  BoundStep step{.run_alone = run_loop, .state = &loop};
  const scheduler::ShareTimes times = executor.run_shares(step);
  EXPECT_EQ(times.status, 0);
  for (const int value : values) EXPECT_EQ(value, 50);
  EXPECT_LT(times.longest_us, times.all_us);
  EXPECT_GT(times.longest_us, 0);
}

TEST(Executor, ManyCallersAtOnce) {
  Executor executor(3);
  std::vector<std::thread> callers;
  std::atomic<int> wrong{0};
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      std::vector<int> values(64, 0);
      const Slice slice{&values, 0};
      const BoundStep steps[] = {step_over(slice, 64, kBig), step_over(slice, 64, kBig)};
      const BoundStage stages[] = {{0, 1}, {1, 1}};
      for (int k = 0; k < 200; ++k) executor.run(steps, stages);
      for (const int value : values) wrong += value != 400;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong.load(), 0);
}

/// What callers that are all at work at once share.
struct Crowd {
  std::barrier<> together;
  std::atomic<int> lent{0};  ///< iterations that another thread than the caller's ran
};

struct Member {
  Crowd* crowd;
  std::thread::id thread;
  std::atomic<bool> waited{false};
};

/// The first iteration to begin waits for all callers.
void wait_for_all(const BoundStep& step, std::int64_t, std::int64_t, int, std::int32_t*) {
  auto& member = *static_cast<Member*>(step.request);
  if (!member.waited.exchange(true)) member.crowd->together.arrive_and_wait();
}

/// Leaves the processor meanwhile, so that a lent thread would have its chance.
void note_lent(const BoundStep& step, std::int64_t begin, std::int64_t end, int, std::int32_t*) {
  std::this_thread::sleep_for(std::chrono::microseconds(200));
  const auto& member = *static_cast<const Member*>(step.request);
  if (std::this_thread::get_id() != member.thread)
    member.crowd->lent += static_cast<int>(end - begin);
}

TEST(Executor, NoThreadsAreLentWhileCallersTakeEveryProcessor) {
  const int callers = tbb::info::default_concurrency();
  Crowd crowd{std::barrier<>(callers)};
  std::vector<std::unique_ptr<Executor>> executors;
  for (int k = 0; k < callers; ++k) executors.push_back(std::make_unique<Executor>(4));
  std::vector<std::thread> threads;
  for (const auto& executor : executors) {
    threads.emplace_back([&crowd, &executor] {
      Member member{&crowd, std::this_thread::get_id()};
      Member at_the_end{&crowd, member.thread};
      BoundStep steps[3];
      for (BoundStep& step : steps) {
        step.run = note_lent;
        step.request = &member;
        step.extent = 64;
        step.work = kBig;
      }
      steps[0].run = steps[2].run = wait_for_all;
      steps[2].request = &at_the_end;
      const BoundStage stages[] = {{0, 1}, {1, 1}, {2, 1}};
      executor->run(steps, stages);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(crowd.lent.load(), 0);
}

}  // namespace
}  // namespace heddle::scheduler
