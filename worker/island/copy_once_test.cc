#include "worker/island/copy_once.h"

#include <atomic>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

namespace atl::worker {
namespace {

TEST(CopyOnceTest, IsMadeOnceByWhoeverComesFirst) {
  CopyOnce copy;
  copy.Finish();  // None is due.
  int made = 0;
  copy.Begin([&] { ++made; });
  EXPECT_EQ(made, 0);
  copy.Finish();
  copy.Finish();
  EXPECT_EQ(made, 1);
}

TEST(CopyOnceTest, OneThatWasNeverMadeGivesWayToTheNext) {
  CopyOnce copy;
  int first = 0, second = 0;
  copy.Begin([&] { ++first; });
  copy.Begin([&] { ++second; });
  copy.Finish();
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 1);
}

TEST(CopyOnceTest, WhoComesSecondWaitsUntilItIsMade) {
  CopyOnce copy;
  absl::Notification begun, may_end;
  std::atomic<bool> made{false};
  copy.Begin([&] {
    begun.Notify();
    may_end.WaitForNotification();
    made = true;
  });
  std::thread in_background([&] { copy.Finish(); });
  begun.WaitForNotification();
  std::atomic<bool> returned{false};
  std::thread writer([&] {
    copy.Finish();
    returned = true;
  });
  while (copy.waiter_count() == 0 && !returned) std::this_thread::yield();
  EXPECT_FALSE(returned);
  EXPECT_FALSE(made);
  may_end.Notify();
  writer.join();
  EXPECT_TRUE(made);
  EXPECT_EQ(copy.waiter_count(), 0);
  in_background.join();
}

}  // namespace
}  // namespace atl::worker
