#include "worker/island/work_threads.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace atl::worker {
namespace {

int Niceness() {
  return ::getpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)));
}

TEST(WorkThreadsTest, VisitsEachIndexOnce) {
  for (const int thread_count : {1, 2, 5}) {
    WorkThreads threads(thread_count, /*yields=*/thread_count == 2);
    for (const int64_t count : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> visits(count);
      threads.loop()(count, [&](int64_t i) { ++visits[i]; });
      for (const std::atomic<int>& visit : visits) EXPECT_EQ(visit, 1);
    }
  }
}

TEST(WorkThreadsTest, ThreadsThatYieldAreNicerThanTheCaller) {
  constexpr int kThreads = 3;
  WorkThreads threads(kThreads, /*yields=*/true);
  std::vector<int> niceness(kThreads, 99);
  threads.loop()(kThreads, [&](int64_t i) { niceness[i] = Niceness(); });
  EXPECT_EQ(niceness[0], Niceness());
  for (int i = 1; i < kThreads; ++i) {
    EXPECT_EQ(niceness[i], std::min(Niceness() + 10, 19));
  }
}

}  // namespace
}  // namespace atl::worker
