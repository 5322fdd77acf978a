#include "server/merge/work_queue.h"

#include <atomic>
#include <vector>

#include "base/sync/testing/notification.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

TEST(WorkQueueTest, OneThreadRunsTasksInOrder) {
  std::vector<int> order;
  Notification done;
  WorkQueue queue(1);
  for (int i = 0; i < 100; ++i) {
    queue.Post([&order, i] { order.push_back(i); });
  }
  queue.Post([&done] { done.Notify(); });
  ASSERT_TRUE(done.WaitWithTimeout(absl::Minutes(2)));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(WorkQueueTest, StopDropsWhatHasNotBegun) {
  Notification begun, release;
  std::atomic<int> count = 0;
  WorkQueue queue(1);
  queue.Post([&] {
    begun.Notify();
    release.WaitWithTimeout(absl::Minutes(2));
    ++count;
  });
  ASSERT_TRUE(begun.WaitWithTimeout(absl::Minutes(2)));
  queue.Post([&] { ++count; });
  std::thread stopper([&] { queue.Stop(); });
  queue.Post([&] { ++count; });
  release.Notify();
  stopper.join();
  queue.Post([&] { ++count; });
  EXPECT_GE(count, 1);
}

TEST(TilePoolTest, RunsEveryTileOnceWhateverTheThreads) {
  for (const int threads : {1, 2, 5}) {
    TilePool pool(threads);
    EXPECT_EQ(pool.thread_count(), threads);
    for (const int64_t count : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> runs(count);
      std::atomic<bool> bad_worker = false;
      pool.Run(count, [&](int worker, int64_t tile) {
        ++runs[tile];
        if (worker < 0 || worker >= threads) bad_worker = true;
      });
      for (const auto& run : runs) EXPECT_EQ(run, 1);
      EXPECT_FALSE(bad_worker);
    }
  }
}

}  // namespace
}  // namespace atl::server
