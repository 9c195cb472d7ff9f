// Which context a request gets: the one its thread gave back, else any that waits, else a new one.
#include <barrier>
#include <gtest/gtest.h>
#include <set>
#include <thread>
#include <vector>

#include "engine/context.h"

namespace heddle::engine {
namespace {

/// Takes a context and gives it back. @return which it was
const ExecutionContext* borrowed(ContextPool& pool) {
  std::unique_ptr<ExecutionContext> context = pool.acquire();
  const ExecutionContext* which = context.get();
  pool.release(std::move(context));
  return which;
}

TEST(ContextPool, ThreadsThatCallInTurnShareOne) {
  ContextPool pool;
  const ExecutionContext* mine = borrowed(pool);
  const ExecutionContext* theirs = nullptr;
  for (int k = 0; k < 3; ++k) std::thread([&] { theirs = borrowed(pool); }).join();
  EXPECT_EQ(theirs, mine);
  EXPECT_EQ(borrowed(pool), mine);
}

TEST(ContextPool, ThreadsThatCallAtOnceGetTheirOwnBack) {
  constexpr std::size_t kThreads = 3;
  ContextPool pool;
  std::barrier together(kThreads);
  std::vector<std::set<const ExecutionContext*>> seen(kThreads);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int k = 0; k < 5; ++k) {
        std::unique_ptr<ExecutionContext> context = pool.acquire();
        seen[t].insert(context.get());
        together.arrive_and_wait();  // all hold one
        pool.release(std::move(context));
        together.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<const ExecutionContext*> all;
  for (const auto& of_thread : seen) {
    EXPECT_EQ(of_thread.size(), 1u);
    all.insert(of_thread.begin(), of_thread.end());
  }
  EXPECT_EQ(all.size(), kThreads);
}

TEST(ContextPool, ManyRequestsAtOnceEachHaveOne) {
  ContextPool pool;
  std::set<const ExecutionContext*> all;
  std::vector<std::unique_ptr<ExecutionContext>> held;
  for (int k = 0; k < 100; ++k) all.insert(held.emplace_back(pool.acquire()).get());
  EXPECT_EQ(all.size(), 100u);
  for (auto& context : held) pool.release(std::move(context));
  EXPECT_TRUE(all.contains(borrowed(pool)));
}

}  // namespace
}  // namespace heddle::engine
