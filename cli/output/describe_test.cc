#include "cli/output/describe.h"

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

v1::ScheduleSpec Schedule(int64_t round_count, int64_t token_count) {
  v1::ScheduleSpec schedule;
  schedule.set_round_count(round_count);
  schedule.set_token_count(token_count);
  return schedule;
}

v1::GetRunStateResponse State(const v1::ScheduleSpec& schedule, int64_t first,
                              int64_t second, int64_t merged_token_count) {
  v1::GetRunStateResponse state;
  *state.mutable_run()->mutable_spec()->mutable_schedule() = schedule;
  state.add_cut()->set_version(first);
  state.add_cut()->set_version(second);
  state.set_merged_token_count(merged_token_count);
  return state;
}

TEST(DescribeTest, TellsTheLengthThatARunWasGiven) {
  EXPECT_EQ(PlannedRounds(Schedule(30, 0)), "30");
  EXPECT_EQ(PlannedTokens(Schedule(30, 0)), "-");
  EXPECT_EQ(PlannedRounds(Schedule(0, 1843200)), "-");
  EXPECT_EQ(PlannedTokens(Schedule(0, 1843200)), "1,843,200");
}

TEST(DescribeTest, TellsWhereARunEndsBeforeItHasWarmedUp) {
  v1::RunSpec spec;
  *spec.mutable_schedule() = Schedule(30, 0);
  spec.mutable_schedule()->set_inner_step_count(20);
  spec.mutable_inner()->set_warmup_step_count(599);
  EXPECT_EQ(DescribeShortRun(spec), "");
  spec.mutable_inner()->set_warmup_step_count(600);
  EXPECT_THAT(DescribeShortRun(spec),
              HasSubstr("30 rounds of 20 steps, and inner.warmup_step_count = "
                        "600"));
  // Tokens end the run; their number of steps is unknown.
  spec.mutable_schedule()->set_round_count(0);
  EXPECT_EQ(DescribeShortRun(spec), "");
}

TEST(DescribeTest, TellsTheSizeOfAModel) {
  v1::RunSpec spec;
  spec.mutable_model()->set_architecture("llama");
  v1::TensorSpec* tensor = spec.mutable_layout()->add_tensors();
  tensor->add_shape(30);
  tensor->add_shape(40);
  EXPECT_EQ(DescribeModel(spec), "llama, 1,200 parameters");
  spec.mutable_model()->set_architecture("external");
  // Some answers leave the tensors out.
  v1::RunSpec without = spec;
  without.clear_layout();
  EXPECT_EQ(DescribeModel(without), "external");
  EXPECT_EQ(DescribeModel(spec), "external, 1,200 parameters in 1 tensor");
  spec.mutable_layout()->add_tensors()->add_shape(34);
  EXPECT_EQ(DescribeModel(spec), "external, 1,234 parameters in 2 tensors");
}

TEST(DescribeTest, AnExternalModelMayWarmUpForLongerThanItsRun) {
  v1::RunSpec spec;
  *spec.mutable_schedule() = Schedule(30, 0);
  spec.mutable_schedule()->set_inner_step_count(20);
  spec.mutable_inner()->set_warmup_step_count(600);
  EXPECT_NE(DescribeShortRun(spec), "");
  spec.mutable_model()->set_architecture("external");
  EXPECT_EQ(DescribeShortRun(spec), "");
}

TEST(DescribeTest, TellsTheFaultOfARunWithItsState) {
  v1::Run run;
  run.set_state(v1::RUN_STATE_PAUSED);
  EXPECT_EQ(DescribeRunState(run), "PAUSED");
  run.mutable_fault()->set_code("SHARD_BEHIND");
  EXPECT_EQ(DescribeRunState(run), "PAUSED (SHARD_BEHIND)");
}

TEST(DescribeTest, ARestoreNamesItsCutAndTheLostCommits) {
  v1::Restore restore;
  restore.set_pin_id("round-8");
  restore.set_cut_commit_seq(9);
  restore.set_commit_seq(15);
  EXPECT_THAT(DescribeRestore(restore),
              HasSubstr("to round-8, the state after commit 8, at "));
  EXPECT_THAT(DescribeRestore(restore), HasSubstr(": commits 9 to 14 are lost"));
  restore.set_commit_seq(10);
  EXPECT_THAT(DescribeRestore(restore), HasSubstr(": commit 9 is lost"));
  restore.set_commit_seq(9);
  EXPECT_THAT(DescribeRestore(restore), Not(HasSubstr("lost")));
  restore.set_commit_seq(1'000'000'000);
  EXPECT_THAT(DescribeRestore(restore),
              HasSubstr(": it continues from a copy, and later commits are lost"));
}

TEST(DescribeTest, TellsRoundsOfThoseThatWerePlanned) {
  EXPECT_EQ(DescribeRounds(12, 30), "12 of 30");
  EXPECT_EQ(DescribeRounds(12, 0), "12");
}

TEST(DescribeTest, AnEvaluationNamesItsIslandIfThatIsKnown) {
  v1::RunEvent event;
  event.mutable_evaluated()->set_version(8);
  event.mutable_evaluated()->set_loss(2.5);
  EXPECT_THAT(DescribeEvent(event, Schedule(30, 0)),
              Not(HasSubstr(", by ")));
  event.mutable_evaluated()->set_island_id("attic");
  EXPECT_THAT(DescribeEvent(event, Schedule(30, 0)),
              HasSubstr("version 8 evaluated"));
  EXPECT_THAT(DescribeEvent(event, Schedule(30, 0)),
              HasSubstr(", by attic"));
}

TEST(DescribeTest, AnEvaluationThatFailedSaysWhy) {
  v1::RunEvent event;
  event.mutable_evaluated()->set_version(8);
  event.mutable_evaluated()->set_loss(std::nan(""));
  event.mutable_evaluated()->set_island_id("attic");
  event.mutable_evaluated()->set_failure("the held-out loss is nan");
  EXPECT_THAT(DescribeEvent(event, Schedule(30, 0)),
              HasSubstr("version 8 not evaluated, by attic: the held-out loss "
                        "is nan"));
}

TEST(DescribeTest, WhatLeavesTheBandIsSaidInItsEvent) {
  v1::RunEvent event;
  event.mutable_round_committed()->set_outside_band("its norm is inf");
  EXPECT_THAT(DescribeEvent(event, {}),
              HasSubstr("; outside the run's band: its norm is inf"));
  event.mutable_evaluated()->set_outside_band("its evaluation failed");
  EXPECT_THAT(DescribeEvent(event, {}),
              HasSubstr("; outside the run's band: its evaluation failed"));
  event.mutable_pin_changed()->mutable_pin()->set_pin_id("round-9");
  event.mutable_pin_changed()->mutable_pin()->set_suspect(true);
  EXPECT_THAT(DescribeEvent(event, {}), HasSubstr(", suspect"));
}

TEST(DescribeTest, TellsTokensAsAShareOfTheirBudget) {
  EXPECT_EQ(DescribeTokens(1234, Schedule(3, 0)), "1,234");
  EXPECT_EQ(DescribeTokens(1234, Schedule(0, 5000)), "1,234 of 5,000 (24.7 %)");
  EXPECT_EQ(DescribeTokens(5100, Schedule(0, 5000)),
            "5,100 of 5,000 (102.0 %)");
}

TEST(DescribeTest, TheShareThatIsDoneIsTheFurtherOfRoundsAndTokens) {
  EXPECT_DOUBLE_EQ(DoneShare(State(Schedule(4, 0), 2, 1, 900)), 0.25);
  EXPECT_DOUBLE_EQ(DoneShare(State(Schedule(0, 1000), 2, 1, 900)), 0.9);
  EXPECT_DOUBLE_EQ(DoneShare(State(Schedule(2, 1000), 2, 2, 900)), 1);
  EXPECT_DOUBLE_EQ(DoneShare(State(Schedule(0, 1000), 9, 9, 1100)), 1);
}

TEST(DescribeTest, APinSaysWhatItKeepsAndWhereItEnded) {
  v1::Pin pin;
  EXPECT_EQ(DescribeKept(pin), "no contributions");
  pin.set_keep_bytes_max(20'000'000);
  pin.set_kept_bytes(1'200'000);
  EXPECT_THAT(DescribeKept(pin), Not(HasSubstr("commit")));
  pin.set_keep_end(12);
  EXPECT_THAT(DescribeKept(pin), HasSubstr("up to commit 11"));
}

// Adds a wait of the round that the protocol calls `version`.
v1::WaitingRound* AddWait(v1::GetRunStateResponse& state, int64_t version,
                          int64_t since_s) {
  v1::WaitingRound* const round = state.add_waiting_rounds();
  round->set_version(version);
  round->set_expected_count(8);
  round->set_received_count(2);
  round->mutable_since_time()->set_seconds(since_s);
  return round;
}

TEST(DescribeTest, AWaitNamesTheIslandsAndTheRoundAsItsOpenAndItsCommitDo) {
  v1::GetRunStateResponse state;
  EXPECT_EQ(DescribeWait(state), "");
  v1::WaitingRound* const round = AddWait(state, 11, 1000);
  round->add_island_ids("b");
  round->add_island_ids("c");
  round->set_awaited_count(6);
  EXPECT_EQ(DescribeWait(state),
            "for b, c and 4 more since 1970-01-01T00:16:40Z: round 12 has 2 of "
            "8");
  v1::RunEvent event;
  event.mutable_round_opened()->mutable_round()->set_version(11);
  EXPECT_THAT(DescribeEvent(event, Schedule(30, 0)), HasSubstr("round 12 "));
  AddWait(state, 4, 999)->set_fragment(3);
  EXPECT_THAT(DescribeWait(state), HasSubstr("round 5 of fragment 3 has "));
}

TEST(DescribeTest, AReadyIslandsWorkIsItsPhaseIfItTellsOne) {
  v1::Island island;
  island.set_state(v1::ISLAND_STATE_READY);
  EXPECT_EQ(DescribeWork(island), "READY");
  island.set_phase(v1::ISLAND_PHASE_NO_TRAINER);
  EXPECT_EQ(DescribeWork(island), "NO_TRAINER");
  // One that is lost tells nothing.
  island.set_state(v1::ISLAND_STATE_LOST);
  EXPECT_EQ(DescribeWork(island), "LOST");
  // A newer coordinator's phase.
  island.set_state(v1::ISLAND_STATE_READY);
  island.set_phase(static_cast<v1::IslandPhase>(100));
  EXPECT_EQ(DescribeWork(island), "READY");
}

TEST(DescribeTest, NamesRefusedContributionsAndWhoSitsOut) {
  v1::SittingOut sitting;
  sitting.set_refused_count(2);
  sitting.set_reason("why");
  sitting.set_until_commit_seq(7);
  EXPECT_EQ(DescribeSittingOut(sitting, 6),
            "2 refused, sits out until commit 7: why");
  EXPECT_EQ(DescribeSittingOut(sitting, 7), "2 refused: why");
  v1::RunEvent refused;
  v1::RoundContribution& one =
      *refused.mutable_contributions_refused()->add_contributions();
  one.set_island_id("b");
  one.set_reason("why");
  EXPECT_THAT(DescribeEvent(refused, Schedule(30, 0)),
              EndsWith("contribution of b refused: why"));
  v1::RunEvent committed;
  one.set_outcome(v1::OUTCOME_REJECTED);
  *committed.mutable_round_committed()->add_contributions() = one;
  EXPECT_THAT(DescribeEvent(committed, Schedule(30, 0)),
              EndsWith("; b was refused: why"));
  one.set_outcome(v1::OUTCOME_MERGED);
  *committed.mutable_round_committed()->mutable_contributions(0) = one;
  EXPECT_THAT(DescribeEvent(committed, Schedule(30, 0)),
              EndsWith("; b has changed nothing (norm 0)"));
  committed.mutable_round_committed()->mutable_contributions(0)->set_norm(1);
  EXPECT_THAT(DescribeEvent(committed, Schedule(30, 0)), EndsWith("1 MERGED"));
}

TEST(DescribeTest, AnIslandThatLeftSaysWhyAndWhere) {
  v1::RunEvent event;
  v1::IslandChanged& change = *event.mutable_island_changed();
  change.set_island_id("kitchen");
  change.set_slot(3);
  change.set_state(v1::ISLAND_STATE_LEFT);
  change.mutable_leave()->set_reason("its user has asked it to finish");
  change.mutable_leave()->set_step(120);
  EXPECT_THAT(DescribeEvent(event, {}),
              testing::EndsWith("island kitchen (slot 3) LEFT: its user has asked it to "
                       "finish (at step 120)"));
  change.mutable_leave()->set_loss(2.5);
  EXPECT_THAT(DescribeEvent(event, {}),
              testing::EndsWith("(at step 120, training loss 2.5000)"));
  change.mutable_leave()->clear_reason();
  EXPECT_THAT(DescribeLeave(change.leave()), HasSubstr("did not say why"));
}

TEST(DescribeTest, AWaitForNobodyThatIsThereIsForAnyIsland) {
  v1::GetRunStateResponse state;
  AddWait(state, 0, 0);
  EXPECT_THAT(DescribeWait(state),
              HasSubstr("for an island to join or come back since "));
}

TEST(DescribeTest, ACommitOfARunByTokensTellsHowManyAreMerged) {
  v1::RunEvent event;
  v1::Round& round = *event.mutable_round_committed();
  round.set_version(12);
  round.set_merged_token_count(614);
  EXPECT_THAT(DescribeEvent(event, Schedule(0, 1000)),
              EndsWith("round 12 committed, 614 of 1,000 (61.4 %) tokens"));
  EXPECT_THAT(DescribeEvent(event, Schedule(30, 0)), Not(HasSubstr("tokens")));
  // An older coordinator does not count tokens.
  round.clear_merged_token_count();
  EXPECT_THAT(DescribeEvent(event, Schedule(0, 1000)),
              Not(HasSubstr("tokens")));
}

}  // namespace
}  // namespace atl::cli
