#include "base/object_store/retrier.h"

#include <cstdint>
#include <string>
#include <vector>

#include "base/status/refusal.h"
#include "base/time/testing/fake_clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::HasSubstr;

class RetrierTest : public ::testing::Test {
 protected:
  Waiting MakeWaiting() {
    return {.clock = &clock_,
            .sleep =
                [this](absl::Duration nap) {
                  clock_.Advance(nap);
                  slept_ += nap;
                  nap_max_ = std::max(nap_max_, nap);
                },
            .cancelled = [this] { return cancelled_; }};
  }

  // Runs attempts that fail `failure_count` times with `failure`.
  absl::Status Run(int failure_count, const absl::Status& failure,
                   const RetryBudget& budget = {}) {
    attempt_count_ = 0;
    slept_ = absl::ZeroDuration();
    return Retrier(budget, MakeWaiting(), /*seed=*/1).Run([&] {
      return attempt_count_++ < failure_count ? failure : absl::OkStatus();
    });
  }

  FakeClock clock_;
  int attempt_count_ = 0;
  absl::Duration slept_;
  absl::Duration nap_max_;
  bool cancelled_ = false;
};

TEST_F(RetrierTest, SuccessAndFinalErrorsNeedOneAttempt) {
  EXPECT_TRUE(Run(0, absl::OkStatus()).ok());
  EXPECT_EQ(attempt_count_, 1);
  EXPECT_EQ(Run(9, absl::NotFoundError("a")), absl::NotFoundError("a"));
  EXPECT_EQ(attempt_count_, 1);
  EXPECT_EQ(slept_, absl::ZeroDuration());
}

TEST_F(RetrierTest, WaitsGrowUntilItSucceeds) {
  EXPECT_TRUE(Run(3, absl::UnavailableError("a")).ok());
  EXPECT_EQ(attempt_count_, 4);
  // 200, 400 and 800 ms, each at least by half.
  EXPECT_GE(slept_, absl::Milliseconds(700));
  EXPECT_LE(slept_, absl::Milliseconds(1400));
  EXPECT_LE(nap_max_, absl::Milliseconds(100));
}

TEST_F(RetrierTest, TheCountOfAttemptsIsBounded) {
  const absl::Status status =
      Run(99, absl::UnavailableError("a"), {.attempt_count_max = 3});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("3 attempts"));
  EXPECT_EQ(attempt_count_, 3);
}

TEST_F(RetrierTest, TheTimeIsBounded) {
  const absl::Status status =
      Run(9999, absl::UnavailableError("a"),
          {.attempt_count_max = 1000, .time_max = absl::Seconds(30)});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_LE(slept_, absl::Seconds(30));
  EXPECT_GE(slept_, absl::Seconds(10));
}

TEST_F(RetrierTest, WaitsAtLeastAsLongAsTheServerAsks) {
  EXPECT_TRUE(
      Run(1, WithRetryDelay(absl::UnavailableError("a"), absl::Seconds(17)))
          .ok());
  EXPECT_GE(slept_, absl::Seconds(17));
  EXPECT_LE(slept_, 1.25 * absl::Seconds(17));
}

TEST_F(RetrierTest, ProgressStartsTheBudgetAnew) {
  int64_t moved = 0;
  int call_count = 0;
  const auto run = [&](int64_t bytes) {
    call_count = 0;
    return Retrier({.attempt_count_max = 2}, MakeWaiting(), 1)
        .Run(
            [&] {
              moved += bytes;
              return ++call_count < 50 ? absl::UnavailableError("a")
                                       : absl::OkStatus();
            },
            [&] { return moved; });
  };
  EXPECT_TRUE(run(Retrier::kProgressBytes).ok());
  EXPECT_EQ(call_count, 50);
  EXPECT_FALSE(run(1).ok());
  EXPECT_EQ(call_count, 2);
}

TEST_F(RetrierTest, AWaitEndsWhenCancelled) {
  cancelled_ = true;
  EXPECT_EQ(Run(9, absl::UnavailableError("a")).code(),
            absl::StatusCode::kCancelled);
  EXPECT_EQ(attempt_count_, 1);
}

}  // namespace
}  // namespace atl
