#include "worker/collective/call_queue.h"

#include <thread>
#include <vector>

#include "base/sync/testing/notification.h"
#include "gtest/gtest.h"

namespace atl::collective {
namespace {

Call Numbered(int number) {
  return Call::Broadcast(DataType::kBytes, nullptr, 0, number);
}

TEST(CallQueueTest, MakesCallsInOrderAndReturnsTheirStatus) {
  std::vector<int> made;
  CallQueue queue([&](const Call& call) {
    made.push_back(call.root);
    return call.root == 2 ? absl::UnavailableError("2") : absl::OkStatus();
  });
  Pending first = queue.Start(Numbered(1));
  Pending second = queue.Start(Numbered(2));
  EXPECT_TRUE(queue.Run(Numbered(3)).ok());
  EXPECT_EQ(made, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(second.Wait().message(), "2");
  EXPECT_EQ(second.Wait().message(), "2");
  EXPECT_TRUE(first.Wait().ok());
}

TEST(CallQueueTest, StartedCallsRunBesideTheCallerAndWaitedOnesOnIt) {
  Notification go;
  std::thread::id ran_on;
  CallQueue queue([&](const Call& call) {
    ran_on = std::this_thread::get_id();
    if (call.root == 1) {
      EXPECT_TRUE(go.WaitWithTimeout(absl::Minutes(2)));
    }
    return absl::OkStatus();
  });
  Pending pending = queue.Start(Numbered(1));
  go.Notify();
  EXPECT_TRUE(pending.Wait().ok());
  EXPECT_NE(ran_on, std::this_thread::get_id());
  EXPECT_TRUE(queue.Run(Numbered(2)).ok());
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(CallQueueTest, EndsWhatWasStarted) {
  int made = 0;
  {
    CallQueue queue([&](const Call&) {
      ++made;
      return absl::OkStatus();
    });
    queue.Start(Numbered(1));
    queue.Start(Numbered(2));
  }
  EXPECT_EQ(made, 2);
}

}  // namespace
}  // namespace atl::collective
