#include "worker/island/meter/contribution_tally.h"

#include "gtest/gtest.h"

namespace atl::worker {
namespace {

v1::ContributionOutcome Outcome(int64_t seq, v1::Outcome outcome) {
  v1::ContributionOutcome result;
  result.mutable_key()->set_seq(seq);
  result.set_outcome(outcome);
  result.set_reason("NOT_FINITE");
  return result;
}

TEST(ContributionMeterTest, CountsByOutcomeAndTheTokensOfMergedOnes) {
  ContributionMeter meter;
  meter.Made(1, 1000, /*fragment_count=*/2);
  meter.Made(2, 3000, /*fragment_count=*/2);
  meter.Decided(Outcome(1, v1::OUTCOME_MERGED));
  meter.Decided(Outcome(1, v1::OUTCOME_LATE));
  meter.Decided(Outcome(2, v1::OUTCOME_MERGED));
  meter.Decided(Outcome(2, v1::OUTCOME_REJECTED));
  meter.Decided(Outcome(3, v1::OUTCOME_STALE));
  meter.Decided(Outcome(3, v1::OUTCOME_DROPPED));
  meter.Decided(Outcome(4, v1::OUTCOME_CANCELLED));
  ContributionTally all;
  all.Add(meter.tally());
  all.Add(meter.tally());
  EXPECT_EQ(all.merged_count, 4);
  EXPECT_EQ(all.merged_tokens, 4000);
  EXPECT_EQ(all.late_count, 2);
  EXPECT_EQ(all.stale_count, 2);
  EXPECT_EQ(all.rejected_count, 2);
  EXPECT_EQ(all.rejected_reason, "NOT_FINITE");
  EXPECT_EQ(all.dropped_count, 4);
}

TEST(ContributionMeterTest, ForgetsTheTokensOfOldContributions) {
  ContributionMeter meter;
  for (int64_t seq = 1; seq <= 65; ++seq) meter.Made(seq, 10, 1);
  meter.Decided(Outcome(1, v1::OUTCOME_MERGED));
  EXPECT_EQ(meter.tally().merged_tokens, 0);
  meter.Decided(Outcome(65, v1::OUTCOME_MERGED));
  EXPECT_EQ(meter.tally().merged_tokens, 10);
}

}  // namespace
}  // namespace atl::worker
