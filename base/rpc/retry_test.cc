#include "base/rpc/retry.h"

#include <algorithm>

#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

const absl::Status kAway = absl::UnavailableError("away");

TEST(RetryTest, DoublesWithJitterUpToTheBound) {
  RetryPolicy policy;
  policy.initial_delay = absl::Milliseconds(100);
  policy.max_delay = absl::Seconds(1);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Backoff backoff(policy, seed);
    absl::Duration full = policy.initial_delay;
    for (int i = 0; i < 100; ++i) {
      const absl::Duration delay = backoff.Next(kAway);
      EXPECT_GE(delay, full / 2);
      EXPECT_LT(delay, full);
      full = std::min(full * 2, policy.max_delay);
    }
  }
}

TEST(RetryTest, DrawsTheSameFromTheSameSeed) {
  Backoff a({}, 7);
  Backoff b({}, 7);
  Backoff c({}, 8);
  bool differs = false;
  for (int i = 0; i < 10; ++i) {
    const absl::Duration delay = a.Next(kAway);
    EXPECT_EQ(delay, b.Next(kAway));
    differs = differs || delay != c.Next(kAway);
  }
  EXPECT_TRUE(differs);
}

TEST(RetryTest, StartsOverAfterProgress) {
  Backoff backoff({}, 1);
  for (int i = 0; i < 5; ++i) backoff.Next(kAway);
  EXPECT_EQ(backoff.attempt_count(), 5);
  backoff.Reset();
  EXPECT_LT(backoff.Next(kAway), RetryPolicy().initial_delay);
}

TEST(RetryTest, WaitsLongerForAPeerThatIsFull) {
  RetryPolicy policy;
  Backoff backoff(policy, 1);
  EXPECT_GE(backoff.Next(absl::ResourceExhaustedError("full")),
            policy.initial_delay * 2);
}

TEST(RetryTest, WaitsAtLeastWhatThePeerAsksForButNotForEver) {
  Backoff backoff({}, 1);
  Backoff other({}, 2);
  const absl::Status asks = WithRetryDelay(kAway, absl::Seconds(20));
  const absl::Duration delay = backoff.Next(asks);
  EXPECT_GE(delay, absl::Seconds(20));
  EXPECT_LT(delay, absl::Seconds(25));
  EXPECT_NE(delay, other.Next(asks)) << "all come again at once";
  EXPECT_LT(backoff.Next(WithRetryDelay(kAway, absl::Hours(20))),
            absl::Seconds(75));
}

TEST(RetryTest, TwoCallersDrawOtherWaits) {
  EXPECT_NE(RandomSeed(), RandomSeed());
}

TEST(RetryTest, ADelayIsTheOneAskedForIfThatIsLonger) {
  const absl::Status asks = WithRetryDelay(kAway, absl::Seconds(3));
  EXPECT_EQ(DelayAsked(absl::Seconds(1), kAway), absl::Seconds(1));
  EXPECT_EQ(DelayAsked(absl::Seconds(1), asks), absl::Seconds(3));
  EXPECT_EQ(DelayAsked(absl::Seconds(5), asks), absl::Seconds(5));
}

}  // namespace
}  // namespace atl::rpc
