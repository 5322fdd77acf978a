#include "base/rpc/wait_notice.h"

#include <vector>

#include "base/time/testing/fake_clock.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

class WaitNoticeTest : public testing::Test {
 protected:
  // The seconds at which a wait that is looked at each second says something.
  std::vector<int> Wait(int seconds) {
    const absl::Time begin = clock_.Now();
    std::vector<int> said;
    for (int i = 0; i <= seconds; ++i) {
      if (notice_.IsDue(clock_.Now() - begin)) said.push_back(i);
      clock_.Advance(absl::Seconds(1));
    }
    return said;
  }

  FakeClock clock_;
  WaitNotice notice_;
};

TEST_F(WaitNoticeTest, SaysNothingOfAShortWait) {
  EXPECT_EQ(Wait(2), std::vector<int>());
}

TEST_F(WaitNoticeTest, SaysItAfterThreeSecondsAndThenAtGrowingIntervals) {
  EXPECT_EQ(Wait(250), (std::vector<int>{3, 9, 27, 81, 243}));
}

TEST_F(WaitNoticeTest, SaysItAtLeastEveryFiveMinutes) {
  const std::vector<int> said = Wait(4000);
  ASSERT_GE(said.size(), 2);
  EXPECT_EQ(said.back() - said[said.size() - 2], 300);
}

TEST_F(WaitNoticeTest, ANewWaitBeginsAgain) {
  EXPECT_EQ(Wait(20), (std::vector<int>{3, 9}));
  EXPECT_EQ(Wait(20), (std::vector<int>{3, 9}));
}

TEST(DescribeSilenceTest, NamesWhatAPersonCanMend) {
  EXPECT_EQ(DescribeSilence(absl::OkStatus()), "it does not answer");
  EXPECT_EQ(DescribeSilence(absl::UnavailableError(
                "DNS resolution failed for s0.atoll-server:7401: C-ares status "
                "is not ARES_SUCCESS qtype=A name=s0.atoll-server")),
            "the name does not resolve here");
  EXPECT_EQ(DescribeSilence(absl::UnavailableError(
                "failed to connect to all addresses; last error: UNKNOWN: "
                "ipv4:127.0.0.1:1: Failed to connect to remote host: "
                "Connection refused")),
            "it refuses connections");
  EXPECT_EQ(DescribeSilence(absl::NotFoundError("no such run")), "no such run");
}

}  // namespace
}  // namespace atl::rpc
