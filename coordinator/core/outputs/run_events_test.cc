#include "coordinator/core/outputs/run_events.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

v1::ContributionOutcome* AddOutcome(storage::v1::Record& record, int32_t slot,
                                    v1::Outcome outcome) {
  v1::ContributionOutcome* const added =
      record.mutable_outcomes_set()->add_outcomes();
  added->mutable_key()->set_slot(slot);
  added->set_outcome(outcome);
  return added;
}

TEST(RunEventsTest, RefusedContributionsAreAnEventThatNamesTheirIslands) {
  storage::v1::Record record;
  AddOutcome(record, 0, v1::OUTCOME_LATE);
  AddOutcome(record, 1, v1::OUTCOME_REJECTED)->set_reason("why");
  const std::optional<v1::RunEvent> event = ToEvent(record, {"a", "b"});
  ASSERT_TRUE(event.has_value());
  ASSERT_THAT(event->contributions_refused().contributions(), SizeIs(1));
  const v1::RoundContribution& refused =
      event->contributions_refused().contributions(0);
  EXPECT_EQ(refused.island_id(), "b");
  EXPECT_EQ(refused.info().key().slot(), 1);
  EXPECT_EQ(refused.outcome(), v1::OUTCOME_REJECTED);
  EXPECT_EQ(refused.reason(), "why");
}

TEST(RunEventsTest, OtherOutcomesOutsideOfRoundsAreNoEvent) {
  storage::v1::Record record;
  AddOutcome(record, 0, v1::OUTCOME_LATE);
  EXPECT_FALSE(ToEvent(record, {"a"}).has_value());
}

TEST(RunEventsTest, WarnsOfRefusalsAndOfNormsAboveTheBound) {
  Batch batch;
  batch.entries.resize(2);
  batch.entries[0].run_id = batch.entries[1].run_id = "r";
  AddOutcome(batch.entries[0].record, 1, v1::OUTCOME_REJECTED)
      ->set_reason("why; island b, round 3");
  v1::Round& round =
      *batch.entries[1].record.mutable_round_committed()->mutable_round();
  for (const double bound : {0.0, 5.0, 7.0}) {
    v1::RoundContribution& added = *round.add_contributions();
    added.set_island_id("own");
    added.set_outcome(v1::OUTCOME_MERGED);
    added.set_norm(6);
    added.set_norm_bound(bound);
  }
  EXPECT_THAT(
      ListWarnings(batch),
      ElementsAre("run r: refused a contribution: why; island b, round 3",
                  "run r: merged a contribution of island own with norm 6, "
                  "above the bound of enrolled islands, 5"));
  EXPECT_THAT(ListWarnings(Batch()), IsEmpty());
}

TEST(RunEventsTest, WarnsOfAnIslandThatChangesNothing) {
  Batch batch;
  batch.entries.resize(1);
  batch.entries[0].run_id = "r";
  v1::Round& round =
      *batch.entries[0].record.mutable_round_committed()->mutable_round();
  for (const v1::Outcome outcome : {v1::OUTCOME_MERGED, v1::OUTCOME_LATE}) {
    v1::RoundContribution& added = *round.add_contributions();
    added.set_island_id("still");
    added.set_outcome(outcome);
    added.mutable_info()->set_step_count(20);
  }
  EXPECT_THAT(ListWarnings(batch),
              ElementsAre("run r: merged a contribution of island still with "
                          "norm 0: its 20 steps have not changed the "
                          "parameters that it sends"));
}

TEST(RunEventsTest, AFloodOfRefusalsIsNoFloodOfWarnings) {
  Batch batch;
  batch.entries.resize(1);
  for (int i = 0; i < 1000; ++i) {
    AddOutcome(batch.entries[0].record, i, v1::OUTCOME_REJECTED);
  }
  EXPECT_THAT(ListWarnings(batch), SizeIs(kWarningsMax));
}

}  // namespace
}  // namespace atl::coordinator
