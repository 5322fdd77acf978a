#include "worker/engine/ops/cpu/thread_pool.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace atl::engine {
namespace {

TEST(ThreadPoolTest, RunsEachIndexOnceOnTheThreadOfItsShare) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.thread_count(), threads);
    for (int64_t count : {0, 1, 2, 3, 7, 100}) {
      std::vector<int> runs(count), owner(count);
      pool.ParallelFor(count, [&](int64_t i, int thread) {
        ++runs[i];
        owner[i] = thread;
      });
      for (int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(runs[i], 1) << i;
        EXPECT_LT(owner[i], threads);
        if (i > 0) {
          EXPECT_GE(owner[i], owner[i - 1]) << i;
        }
      }
    }
  }
}

TEST(ThreadPoolTest, ManyShortLoopsSeeEachOthersWrites) {
  ThreadPool pool(3);
  std::vector<int64_t> values(64, 0);
  for (int loop = 0; loop < 2000; ++loop) {
    // Each index reads a value that another thread wrote in the previous loop.
    std::vector<int64_t> next(values.size());
    pool.ParallelFor(static_cast<int64_t>(values.size()), [&](int64_t i, int) {
      next[i] = values[(i + 31) % values.size()] + 1;
    });
    values = next;
  }
  for (int64_t value : values) EXPECT_EQ(value, 2000);
}

TEST(ThreadPoolTest, EndsWithoutHavingWorked) { ThreadPool pool(4); }

}  // namespace
}  // namespace atl::engine
