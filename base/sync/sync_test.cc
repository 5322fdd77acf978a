#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/sync/for_each.h"
#include "base/sync/lower_priority.h"
#include "base/sync/mutex.h"
#include "base/sync/testing/notification.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

int Niceness() { return getpriority(PRIO_PROCESS, gettid()); }

TEST(LowerPriorityTest, IsBelowThatOfTheProgramHoweverNiceItIs) {
  const int usual = Niceness();
  std::thread([usual] {
    LowerPriority(3);
    EXPECT_EQ(Niceness(), std::min(usual + 3, 19));
    LowerPriority(4);
    EXPECT_EQ(Niceness(), std::min(usual + 7, 19));
    LowerPriority(19);
    EXPECT_EQ(Niceness(), 19);
  }).join();
  EXPECT_EQ(Niceness(), usual);
}

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

TEST(ForEachAtOnceTest, VisitsEachOnceInNoMoreThreadsThanAllowed) {
  constexpr int kThreadCountMax = 3;
  Mutex mutex;
  CondVar changed;
  std::vector<int> visit_counts(20, 0);
  int inside = 0;
  int inside_max = 0;
  bool were_at_once = false;
  ForEachAtOnce(20, kThreadCountMax, [&](int i) {
    MutexLock lock(&mutex);
    ++visit_counts[i];
    inside_max = std::max(inside_max, ++inside);
    were_at_once |= inside == kThreadCountMax;
    changed.SignalAll();
    // The first calls return only when others are inside too.
    EXPECT_TRUE(changed.AwaitWithTimeout(&mutex, absl::Seconds(20),
                                         [&] { return were_at_once; }));
    --inside;
  });
  EXPECT_EQ(visit_counts, std::vector<int>(20, 1));
  EXPECT_EQ(inside_max, kThreadCountMax);
}

TEST(ForEachAtOnceTest, OfNothingDoesNothing) {
  ForEachAtOnce(0, 3, [](int) { ADD_FAILURE(); });
}

}  // namespace
}  // namespace atl
