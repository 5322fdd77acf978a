#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/sync/mutex.h"
#include "base/sync/testing/notification.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(MutexTest, LetsOneThreadInAtATime) {
  constexpr int kThreadCount = 4;
  constexpr int kRepeatCount = 1000;
  Mutex mutex;
  int count = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreadCount; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < kRepeatCount; ++j) {
        MutexLock lock(&mutex);
        ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(count, kThreadCount * kRepeatCount);
}

TEST(CondVarTest, TimesOutWhenNobodySignals) {
  Mutex mutex;
  CondVar condition;
  MutexLock lock(&mutex);
  EXPECT_FALSE(condition.AwaitWithTimeout(&mutex, absl::Milliseconds(1),
                                          [] { return false; }));
  EXPECT_TRUE(condition.AwaitWithTimeout(&mutex, absl::InfiniteDuration(),
                                         [] { return true; }));
}

TEST(CondVarTest, WakesAWaiterWhenItsConditionHolds) {
  Mutex mutex;
  CondVar condition;
  bool ready = false;
  std::thread signaller([&] {
    MutexLock lock(&mutex);
    ready = true;
    condition.Signal();
  });
  {
    MutexLock lock(&mutex);
    while (!ready) condition.Wait(&mutex);
  }
  signaller.join();
  EXPECT_TRUE(ready);
}

TEST(NotificationTest, StaysNotified) {
  Notification notification;
  EXPECT_FALSE(notification.WaitWithTimeout(absl::ZeroDuration()));
  std::thread notifier([&] { notification.Notify(); });
  EXPECT_TRUE(notification.WaitWithTimeout(absl::Minutes(2)));
  notifier.join();
  EXPECT_TRUE(notification.HasBeenNotified());
  EXPECT_TRUE(notification.WaitWithTimeout(absl::ZeroDuration()));
}

}  // namespace
}  // namespace atl
