#include "server/service/stream_watchdog.h"

#include <memory>
#include <string>
#include <thread>

#include "base/status/refusal.h"
#include "base/time/testing/fake_clock.h"
#include "gtest/gtest.h"
#include "server/service/testing/expect_no_place.h"

namespace atl::server {
namespace {

class FakeStream : public PushWaiter {
 public:
  void OnSettled(const absl::Status& status) override {
    ADD_FAILURE() << "settled: " << status;
  }
  void OnTooSlow(const absl::Status& status) override { ended = status; }
  void OnDisplaced(const absl::Status& status) override {
    displaced = status;
    progress->ending = true;
  }

  absl::Status ended, displaced;
  std::shared_ptr<WaiterGate> gate = std::make_shared<WaiterGate>(this);
  std::shared_ptr<StreamProgress> progress = std::make_shared<StreamProgress>();
};

class StreamWatchdogTest : public testing::Test {
 protected:
  StreamWatchdogTest()
      : watchdog_({2, absl::Seconds(20)}, clock_, /*run_thread=*/false) {
    EXPECT_TRUE(Add(stream_));
  }

  bool Add(FakeStream& stream, const std::string& caller = "a") {
    const absl::Status added =
        watchdog_.Add(stream.gate, stream.progress, caller);
    if (!added.ok()) ExpectNoPlace(added);
    return added.ok();
  }
  void Pass(int seconds, int64_t bytes) {
    clock_.Advance(absl::Seconds(seconds));
    stream_.progress->payload_bytes += bytes;
    watchdog_.Check();
  }

  FakeClock clock_;
  FakeStream stream_;
  StreamWatchdog watchdog_;
};

TEST_F(StreamWatchdogTest, EndsAStreamOfOneByteASecond) {
  for (int second = 0; second < 19; ++second) Pass(1, 1);
  EXPECT_TRUE(stream_.ended.ok());
  Pass(1, 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream_.ended)) << stream_.ended;
}

TEST_F(StreamWatchdogTest, LeavesAStreamThatMovesEnoughInEveryWindow) {
  for (int window = 0; window < 10; ++window) Pass(20, 16 << 10);
  EXPECT_TRUE(stream_.ended.ok());
  Pass(20, (16 << 10) - 1);
  EXPECT_FALSE(stream_.ended.ok());
}

TEST_F(StreamWatchdogTest, TellsAStreamThatWaitsTooLongForRoomToComeAgain) {
  stream_.progress->waits_for_us = true;
  stream_.progress->budget_turn = 1;
  Pass(1, 0);
  Pass(49, 0);
  stream_.progress->budget_turn = 0;
  Pass(100, 0);
  // Each ticket has its own time.
  stream_.progress->budget_turn = 2;
  Pass(1, 0);
  Pass(49, 0);
  stream_.progress->budget_turn = 3;
  Pass(1, 0);
  Pass(49, 0);
  EXPECT_TRUE(stream_.displaced.ok());
  Pass(1, 0);
  EXPECT_TRUE(absl::IsResourceExhausted(stream_.displaced));
  EXPECT_EQ(GetReason(stream_.displaced)->reason, "QUEUE_FULL");
  EXPECT_TRUE(GetRetryDelay(stream_.displaced).has_value());
  EXPECT_TRUE(stream_.ended.ok());
}

TEST_F(StreamWatchdogTest, DoesNotCountTheTimeThatAPeerWaitsForUs) {
  stream_.progress->waits_for_us = true;
  Pass(100, 0);
  EXPECT_TRUE(stream_.ended.ok());
  stream_.progress->waits_for_us = false;
  Pass(19, 0);
  EXPECT_TRUE(stream_.ended.ok());
  Pass(1, 0);
  EXPECT_FALSE(stream_.ended.ok());
}

TEST_F(StreamWatchdogTest, CountsTheTimeThatAPeerTakesNoAnswer) {
  stream_.progress->waits_for_us = true;
  stream_.progress->answering = true;
  Pass(20, 0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream_.ended)) << stream_.ended;
}

TEST_F(StreamWatchdogTest, BoundsTheNumberOfStreams) {
  FakeStream second, third;
  EXPECT_TRUE(Add(second));
  EXPECT_FALSE(Add(third));
  watchdog_.Remove(second.gate.get());
  EXPECT_TRUE(Add(third));
}

TEST_F(StreamWatchdogTest, OneThatLeavesItsPlaceIsWatchedAllTheSame) {
  FakeStream second, third, fourth;
  EXPECT_TRUE(Add(second));
  watchdog_.LeavePlace(stream_.gate.get());
  watchdog_.LeavePlace(stream_.gate.get());
  EXPECT_TRUE(Add(third));
  EXPECT_FALSE(Add(fourth));
  Pass(20, 0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream_.ended)) << stream_.ended;
  // Its place is already lost.
  watchdog_.Remove(stream_.gate.get());
  EXPECT_FALSE(Add(fourth));
}

TEST_F(StreamWatchdogTest, WhoHasMoreThanAShareMakesRoomAndIsEndedInAMoment) {
  FakeStream second, third, fourth;
  EXPECT_TRUE(Add(second));
  EXPECT_TRUE(Add(third, "b"));
  ExpectNoPlace(second.displaced);
  EXPECT_TRUE(stream_.displaced.ok());
  EXPECT_FALSE(Add(fourth, "c"));
  // It has a moment to send its status; then it is cancelled.
  Pass(1, 0);
  EXPECT_TRUE(second.ended.ok());
  Pass(1, 0);
  EXPECT_FALSE(second.ended.ok());
  EXPECT_TRUE(stream_.ended.ok());
  watchdog_.Remove(second.gate.get());
  EXPECT_FALSE(Add(fourth, "c"));
  watchdog_.Remove(third.gate.get());
  EXPECT_TRUE(Add(fourth, "c"));
}

TEST_F(StreamWatchdogTest, EndsAStreamOnceItIsNoLongerAllowed) {
  absl::Status allowed;
  watchdog_.LimitTo(stream_.gate.get(), [&allowed] { return allowed; });
  watchdog_.CheckAllowed();
  EXPECT_TRUE(stream_.displaced.ok());
  allowed = absl::PermissionDeniedError("revoked");
  Pass(1, 1 << 20);
  EXPECT_EQ(stream_.displaced, allowed);
}

TEST_F(StreamWatchdogTest, NeverCallsAStreamThatIsGone) {
  stream_.gate->Close();
  Pass(20, 0);
  EXPECT_TRUE(stream_.ended.ok());
}

TEST_F(StreamWatchdogTest, AfterCloseEveryStreamIsRefused) {
  const absl::Status stopping = absl::UnavailableError("stopping");
  watchdog_.Close(stopping);
  FakeStream late;
  EXPECT_EQ(watchdog_.Add(late.gate, late.progress, "b"), stopping);
}

TEST_F(StreamWatchdogTest, CloseEndsAllButStreamsThatWaitForTheirOutcome) {
  FakeStream complete;
  ASSERT_TRUE(Add(complete));
  complete.progress->is_complete = true;
  watchdog_.Close(absl::UnavailableError("stopping"));
  EXPECT_TRUE(absl::IsUnavailable(stream_.displaced));
  EXPECT_TRUE(complete.displaced.ok());
}

TEST_F(StreamWatchdogTest, ItIsEmptyOnceTheLastStreamIsRemoved) {
  watchdog_.Close(absl::UnavailableError("stopping"));
  EXPECT_FALSE(watchdog_.WaitUntilEmpty(absl::InfinitePast()));
  std::thread ends([&] { watchdog_.Remove(stream_.gate.get()); });
  EXPECT_TRUE(watchdog_.WaitUntilEmpty(absl::InfiniteFuture()));
  ends.join();
}

}  // namespace
}  // namespace atl::server
