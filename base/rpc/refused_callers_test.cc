#include "base/rpc/refused_callers.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

const absl::Time kBegin = absl::FromUnixSeconds(1'000'000);

absl::Status Full(absl::Duration delay = absl::Seconds(1)) {
  return RefuseForNow(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                      "full", delay);
}

class RefusedCallersTest : public ::testing::Test {
 protected:
  // Refuses `count` calls at `now`. Returns the sum of the holds.
  absl::Duration Refuse(int count, absl::Time now, const char* peer = "a",
                        const absl::Status& status = Full()) {
    absl::Duration hold;
    for (int i = 0; i < count; ++i) {
      hold += callers_.Note(peer, "/Get", status, now);
    }
    return hold;
  }

  RefusedCallers callers_{7};
};

TEST_F(RefusedCallersTest, ACallerThatWaitsIsNeverHeld) {
  absl::Time now = kBegin;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Refuse(RefusedCallers::kRefusedMax, now), absl::ZeroDuration());
    now += absl::Seconds(1);
  }
}

TEST_F(RefusedCallersTest, OneThatDoesNotWaitIsHeldOnceEachPeriod) {
  const absl::Duration hold = Refuse(1000, kBegin);
  EXPECT_GE(hold, absl::Seconds(1));
  EXPECT_LE(hold, absl::Seconds(2));
  // The port had read these calls before the hold began.
  EXPECT_EQ(Refuse(1000, kBegin + hold / 2), absl::ZeroDuration());
}

TEST_F(RefusedCallersTest, OneThatGoesOnIsHeldLonger) {
  absl::Time now = kBegin;
  absl::Duration hold;
  for (int i = 0; i < 3; ++i) {
    hold = Refuse(20, now);
    EXPECT_GE(hold, absl::Seconds(1 << i));
    EXPECT_LE(hold, absl::Seconds(2 << i));
    now += hold;
  }
  for (int i = 0; i < 20; ++i) {
    hold = Refuse(20, now);
    EXPECT_LE(hold, RefusedCallers::kHoldMax);
    now += hold;
  }
  // One period in which it waits.
  EXPECT_EQ(Refuse(2, now), absl::ZeroDuration());
  EXPECT_LE(Refuse(20, now + absl::Seconds(1)), absl::Seconds(2));
}

TEST_F(RefusedCallersTest, LongAfterAHoldTheNextOneIsShort) {
  const absl::Duration hold = Refuse(20, kBegin);
  EXPECT_LE(Refuse(20, kBegin + hold + absl::Minutes(1)), absl::Seconds(2));
}

TEST_F(RefusedCallersTest, AHoldLastsUntilRetryInfoIsOver) {
  EXPECT_GE(Refuse(20, kBegin, "a", Full(absl::Seconds(5))), absl::Seconds(5));
  EXPECT_EQ(Refuse(20, kBegin, "b", Full(absl::Minutes(1))),
            RefusedCallers::kHoldMax);
}

TEST_F(RefusedCallersTest, ConnectionsAndMethodsCountByThemselves) {
  EXPECT_GT(Refuse(20, kBegin, "a"), absl::ZeroDuration());
  EXPECT_EQ(Refuse(8, kBegin, "b"), absl::ZeroDuration());
  EXPECT_EQ(callers_.Note("a", "/Watch", Full(), kBegin),
            absl::ZeroDuration());
}

TEST_F(RefusedCallersTest, CallersAreNotHeldAllForTheSameTime) {
  EXPECT_NE(Refuse(20, kBegin, "a"), Refuse(20, kBegin, "b"));
}

TEST_F(RefusedCallersTest, RemembersABoundedNumber) {
  for (int i = 0; i < 200'000; ++i) {
    Refuse(1, kBegin, absl::StrCat("peer ", i).c_str());
  }
  EXPECT_LE(callers_.count(), 65'536u);
}

}  // namespace
}  // namespace atl::rpc
