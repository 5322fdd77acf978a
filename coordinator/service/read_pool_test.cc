#include "coordinator/service/read_pool.h"

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

CallOrigin Of(const std::string& caller) {
  CallOrigin origin;
  origin.caller = caller;
  return origin;
}

// A read that lasts until the test releases it.
class Held {
 public:
  absl::Status Run(ReadPool& pool, const std::string& caller) {
    return pool.Run(Of(caller), [this](const absl::Status&, ReadPool::Held) {
      started_.set_value();
      release_.get_future().wait();
    });
  }
  void AwaitStart() { started_.get_future().wait(); }
  void Release() { release_.set_value(); }

 private:
  std::promise<void> started_, release_;
};

TEST(ReadPoolTest, ACallerThatFloodsIsRefusedAndOthersAreNot) {
  ReadPool pool(1);
  Held held;
  ASSERT_TRUE(held.Run(pool, "reader:first").ok());
  held.AwaitStart();
  std::atomic<int> read_count = 0;
  const auto count = [&](const absl::Status& status, ReadPool::Held) {
    read_count += status.ok();
  };
  int accepted = 0;
  absl::Status refused;
  for (int i = 0; i < 20; ++i) {
    const absl::Status status = pool.Run(Of("reader:greedy"), count);
    accepted += status.ok();
    refused.Update(status);
  }
  EXPECT_EQ(accepted, 4);
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(HasReason(refused, "QUEUE_FULL")) << refused;
  EXPECT_TRUE(pool.Run(Of("reader:other"), count).ok());
  held.Release();
  pool.Stop();
  EXPECT_EQ(read_count, 5);
}

TEST(ReadPoolTest, AReadCountsUntilItsAnswerIsTaken) {
  std::promise<ReadPool::Held> first;
  ReadPool::Held answer;
  {
    ReadPool pool(1, {.a_caller = {1, 1024}});
    const auto run = [&](std::promise<ReadPool::Held>& held) {
      return pool.Run(Of("reader:slow"),
                      [&](const absl::Status&, ReadPool::Held given) {
                        held.set_value(std::move(given));
                      });
    };
    ASSERT_TRUE(run(first).ok());
    answer = first.get_future().get();
    std::promise<ReadPool::Held> second;
    EXPECT_TRUE(HasReason(run(second), "QUEUE_FULL"));
    answer.reset();
    ASSERT_TRUE(run(second).ok());
    answer = second.get_future().get();
  }
  answer.reset();  // After the pool.
}

TEST(ReadPoolTest, AReadWhoseCallerIsGoneIsTold) {
  ReadPool pool(1);
  Held held;
  ASSERT_TRUE(held.Run(pool, "reader:first").ok());
  held.AwaitStart();
  std::atomic<bool> is_gone = false;
  CallOrigin origin;
  origin.is_gone = [&] { return is_gone.load(); };
  std::promise<absl::Status> told;
  ASSERT_TRUE(pool.Run(origin, [&](const absl::Status& status, ReadPool::Held) {
                    told.set_value(status);
                  }).ok());
  is_gone = true;
  held.Release();
  EXPECT_EQ(told.get_future().get().code(), absl::StatusCode::kCancelled);
}

TEST(ReadPoolTest, AStopFinishesWhatWasAcceptedAndTakesNoMore) {
  ReadPool pool(2);
  std::atomic<int> read_count = 0;
  for (int i = 0; i < 100; ++i) pool.RunOwn([&] { ++read_count; });
  pool.Stop();
  EXPECT_EQ(read_count, 100);
  pool.RunOwn([&] { ++read_count; });
  EXPECT_TRUE(HasReason(
      pool.Run({}, [&](const absl::Status&, ReadPool::Held) { ++read_count; }),
      "STOPPING"));
  EXPECT_EQ(read_count, 100);
}

}  // namespace
}  // namespace atl::coordinator
