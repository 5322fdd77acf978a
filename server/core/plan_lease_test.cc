#include "server/core/plan_lease.h"

#include <cstdint>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

constexpr absl::Duration kLease = absl::Seconds(12);
constexpr int64_t kDelay = 6;  // Of plans, in s: half a lease.

absl::Time At(int64_t seconds) { return absl::FromUnixSeconds(seconds); }

TEST(PlanLeaseTest, AnAnswerCountsAtOnceIfItsPlanIsInForce) {
  PlanLease lease;
  EXPECT_EQ(lease.end(), absl::InfinitePast());
  lease.TakePlan(7);
  EXPECT_EQ(lease.end(), absl::InfinitePast());
  lease.NoteAnswer(7, At(10));
  EXPECT_EQ(lease.end(), At(10));
  lease.NoteAnswer(6, At(11));  // Of before the plan in force.
  EXPECT_EQ(lease.end(), At(11));
}

TEST(PlanLeaseTest, AnAnswerCountsOnlyOnceItsPlanOrANewerOneIsApplied) {
  PlanLease lease;
  lease.TakePlan(7);
  lease.NoteAnswer(8, At(10));
  EXPECT_EQ(lease.end(), absl::InfinitePast());
  lease.TakePlan(7);  // The same plan again.
  EXPECT_EQ(lease.end(), absl::InfinitePast());
  lease.TakePlan(9);
  EXPECT_EQ(lease.end(), At(10));
}

TEST(PlanLeaseTest, AStuckPlanStreamEndsTheLeaseAlthoughReportsAreAnswered) {
  PlanLease lease;
  lease.TakePlan(7);
  lease.NoteAnswer(7, At(10));
  for (int64_t time = 1; time < 1000; ++time) {
    lease.NoteAnswer(8, At(time) + kLease);
  }
  EXPECT_EQ(lease.end(), At(10));
}

TEST(PlanLeaseTest, AnOlderCoordinatorsAnswerCountsWhateverPlanIsInForce) {
  PlanLease lease;
  lease.TakePlan(7);
  lease.NoteAnswer(0, At(10));
  EXPECT_EQ(lease.end(), At(10));
}

TEST(PlanLeaseTest, APlanSatisfiesOnlyTheAnswersThatItIsNewEnoughFor) {
  PlanLease lease;
  lease.NoteAnswer(3, At(10));
  lease.NoteAnswer(5, At(11));
  lease.TakePlan(4);
  EXPECT_EQ(lease.end(), At(10));
  lease.TakePlan(5);
  EXPECT_EQ(lease.end(), At(11));
}

TEST(PlanLeaseTest, AnAnswerOfAnEarlierEndDoesNotShortenTheLease) {
  PlanLease lease;
  lease.NoteAnswer(3, At(10));
  lease.NoteAnswer(0, At(20));
  lease.TakePlan(3);
  EXPECT_EQ(lease.end(), At(20));
}

// A revision a second, plans that are half a lease late, and reports that are
// answered every second or every third of a lease.
TEST(PlanLeaseTest, PlansThatAreAlwaysBehindTheAnswersDoNotStarveIt) {
  for (const int64_t interval : {int64_t{1}, int64_t{4}}) {
    PlanLease lease;
    for (int64_t now = 1; now < 1000; ++now) {
      if (now > kDelay) lease.TakePlan(now - kDelay);
      if (now % interval == 0) lease.NoteAnswer(now, At(now) + kLease);
      if (now > 3 * kDelay) {
        ASSERT_GT(lease.end(), At(now)) << now << " at interval " << interval;
      }
    }
  }
}

TEST(PlanLeaseTest, AnAnswerIsOverdueOnceWhenItsPlanHasNotComeForALease) {
  PlanLease lease;
  EXPECT_FALSE(lease.TakeOverdue(At(100)));
  lease.TakePlan(7);
  lease.NoteAnswer(7, At(10));
  EXPECT_FALSE(lease.TakeOverdue(At(100)));
  lease.NoteAnswer(8, At(110));
  lease.NoteAnswer(9, At(114));
  EXPECT_FALSE(lease.TakeOverdue(At(109)));
  EXPECT_TRUE(lease.TakeOverdue(At(110)));
  EXPECT_FALSE(lease.TakeOverdue(At(200)));
  lease.NoteAnswer(9, At(210));
  EXPECT_TRUE(lease.TakeOverdue(At(210)));
}

}  // namespace
}  // namespace atl::server
