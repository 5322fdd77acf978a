#include "base/failpoint/failpoint.h"

#include <signal.h>

#include <iostream>

#include "gtest/gtest.h"

namespace atl::failpoint {
namespace {

TEST(FailpointTest, KillsAtTheNthHitOfTheArmedPlaceAlone) {
  EXPECT_EXIT(
      {
        (void)Arm("a.before@2");
        Hit("a.after");
        Hit("a.before");
        std::cerr << "still here";
        Hit("a.before");
        exit(4);
      },
      testing::KilledBySignal(SIGKILL), "still here");
}

TEST(FailpointTest, DoesNothingWhenNothingIsArmed) {
  EXPECT_TRUE(Arm("").ok());
  Hit("a.before");
}

TEST(FailpointTest, RefusesAMalformedSpec) {
  for (const char* bad : {"@1", "a@", "a@0", "a@x", "a@-1"}) {
    EXPECT_EQ(Arm(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

}  // namespace
}  // namespace atl::failpoint
