#include "server/service/stream_watchdog.h"

#include <memory>

#include "base/time/fake_clock.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

class FakeStream : public PushWaiter {
 public:
  void OnSettled(const absl::Status& status) override {
    ADD_FAILURE() << "settled: " << status;
  }
  void OnTooSlow(const absl::Status& status) override { ended = status; }

  absl::Status ended;
  std::shared_ptr<WaiterGate> gate = std::make_shared<WaiterGate>(this);
  std::shared_ptr<StreamProgress> progress = std::make_shared<StreamProgress>();
};

class StreamWatchdogTest : public testing::Test {
 protected:
  StreamWatchdogTest()
      : watchdog_({2, absl::Seconds(20), 1000}, clock_, /*run_thread=*/false) {
    EXPECT_TRUE(watchdog_.Add(stream_.gate, stream_.progress));
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
  for (int window = 0; window < 10; ++window) Pass(20, 1000);
  EXPECT_TRUE(stream_.ended.ok());
  Pass(20, 999);
  EXPECT_FALSE(stream_.ended.ok());
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
  EXPECT_TRUE(watchdog_.Add(second.gate, second.progress));
  EXPECT_FALSE(watchdog_.Add(third.gate, third.progress));
  watchdog_.Remove(second.gate.get());
  EXPECT_TRUE(watchdog_.Add(third.gate, third.progress));
}

TEST_F(StreamWatchdogTest, OneThatLeavesItsPlaceIsWatchedAllTheSame) {
  FakeStream second, third, fourth;
  EXPECT_TRUE(watchdog_.Add(second.gate, second.progress));
  watchdog_.LeavePlace(stream_.gate.get());
  watchdog_.LeavePlace(stream_.gate.get());
  EXPECT_TRUE(watchdog_.Add(third.gate, third.progress));
  EXPECT_FALSE(watchdog_.Add(fourth.gate, fourth.progress));
  Pass(20, 0);
  EXPECT_TRUE(absl::IsDeadlineExceeded(stream_.ended)) << stream_.ended;
  // It has none to give back.
  watchdog_.Remove(stream_.gate.get());
  EXPECT_FALSE(watchdog_.Add(fourth.gate, fourth.progress));
}

TEST_F(StreamWatchdogTest, NeverCallsAStreamThatIsGone) {
  stream_.gate->Close();
  Pass(20, 0);
  EXPECT_TRUE(stream_.ended.ok());
}

}  // namespace
}  // namespace atl::server
