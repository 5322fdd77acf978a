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

v1::JoinResponse Joined(int64_t next_seq) {
  v1::JoinResponse response;
  response.set_next_seq(next_seq);
  response.mutable_plan()->add_cut();
  response.mutable_plan()->add_cut();
  return response;
}

v1::ContributionOutcome OfFragment(int32_t fragment, int64_t seq,
                                   v1::Outcome outcome) {
  v1::ContributionOutcome result = Outcome(seq, outcome);
  result.mutable_key()->set_fragment(fragment);
  return result;
}

TEST(ContributionMeterTest, CountsByOutcomeAndTheTokensOfMergedOnes) {
  ContributionMeter meter;
  meter.Joined(Joined(1));
  meter.Made(1, 1000, /*fragment_count=*/2);
  meter.Made(2, 3000, /*fragment_count=*/2);
  meter.Decided(OfFragment(0, 1, v1::OUTCOME_MERGED));
  meter.Decided(OfFragment(1, 1, v1::OUTCOME_LATE));
  meter.Decided(OfFragment(0, 2, v1::OUTCOME_MERGED));
  meter.Decided(OfFragment(1, 2, v1::OUTCOME_REJECTED));
  meter.Decided(OfFragment(0, 3, v1::OUTCOME_STALE));
  meter.Decided(OfFragment(1, 3, v1::OUTCOME_DROPPED));
  meter.Decided(OfFragment(0, 4, v1::OUTCOME_CANCELLED));
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
  meter.Joined(Joined(1));
  for (int64_t seq = 1; seq <= 65; ++seq) meter.Made(seq, 10, 1);
  meter.Decided(Outcome(1, v1::OUTCOME_MERGED));
  EXPECT_EQ(meter.tally().merged_tokens, 0);
  meter.Decided(Outcome(65, v1::OUTCOME_MERGED));
  EXPECT_EQ(meter.tally().merged_tokens, 10);
}

TEST(ContributionMeterTest, CountsAnOutcomeOnceAlthoughEveryPlanHasIt) {
  ContributionMeter meter;
  EXPECT_FALSE(meter.Decided(Outcome(7, v1::OUTCOME_MERGED)));
  meter.Joined(Joined(7));
  EXPECT_FALSE(meter.Decided(Outcome(6, v1::OUTCOME_MERGED)));
  EXPECT_TRUE(meter.Decided(Outcome(7, v1::OUTCOME_MERGED)));
  EXPECT_FALSE(meter.Decided(Outcome(7, v1::OUTCOME_MERGED)));
  meter.Joined(Joined(9));  // After the connection broke.
  EXPECT_TRUE(meter.Decided(Outcome(8, v1::OUTCOME_MERGED)));
  EXPECT_EQ(meter.tally().merged_count, 2);
}

TEST(ContributionMeterTest, CountsWhatIsDecidedAfterARestart) {
  v1::JoinResponse response = Joined(7);
  v1::ContributionInfo& info = *response.add_open_contributions();
  info.mutable_key()->set_fragment(1);
  info.mutable_key()->set_seq(6);
  info.set_token_count(1000);
  ContributionMeter meter;
  meter.Joined(response);
  EXPECT_FALSE(meter.Decided(OfFragment(0, 6, v1::OUTCOME_MERGED)));
  EXPECT_FALSE(meter.Decided(OfFragment(1, 5, v1::OUTCOME_MERGED)));
  EXPECT_TRUE(meter.Decided(OfFragment(1, 6, v1::OUTCOME_MERGED)));
  EXPECT_FALSE(meter.Decided(OfFragment(1, 6, v1::OUTCOME_MERGED)));
  EXPECT_EQ(meter.tally().merged_count, 1);
  EXPECT_EQ(meter.tally().merged_tokens, 500);
}

}  // namespace
}  // namespace atl::worker
