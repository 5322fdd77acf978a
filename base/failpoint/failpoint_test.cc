#include "base/failpoint/failpoint.h"

#include <signal.h>

#include "gtest/gtest.h"

namespace atl::failpoint {
namespace {

TEST(FailpointTest, KillsAtTheNthHitOfTheArmedPlaceAlone) {
  EXPECT_EXIT(
      {
        (void)Arm("a.before@2");
        Hit("a.after");
        Hit("a.before");
        if (HitCount() != 1) exit(3);
        Hit("a.before");
        exit(4);
      },
      testing::KilledBySignal(SIGKILL), "");
}

TEST(FailpointTest, DoesNothingWhenNothingIsArmed) {
  EXPECT_TRUE(Arm("").ok());
  Hit("a.before");
  EXPECT_EQ(HitCount(), 0);
}

TEST(FailpointTest, RefusesAMalformedSpec) {
  for (const char* bad : {"@1", "a@", "a@0", "a@x", "a@-1"}) {
    EXPECT_EQ(Arm(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace atl::failpoint
