// The loop in an async run, while other islands commit.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/core/island_loop.h"
#include "worker/core/testing/shaped_plan.h"

namespace atl::worker {
namespace {

class AsyncIslandTest : public IslandLoopFixture {
 protected:
  AsyncIslandTest() {
    Schedule().set_timing(v1::TIMING_ELASTIC);
    Schedule().set_max_staleness(3);
    Schedule().set_inner_step_count(2);
    Schedule().set_round_count(40);
  }

  void Begin(int fragment_count = 1) {
    for (int f = 0; f < fragment_count; ++f) {
      AddFragment();
      Stand(f, /*version=*/0);
    }
    Join();
    loop_.OnSaveLoaded(std::nullopt);
  }
  // The open round is at `version`; our plan in it starts there if `anew`.
  void Stand(int32_t f, int64_t version, bool anew = true) {
    while (plan_.open_rounds_size() <= f) plan_.add_open_rounds();
    v1::OpenRound& open = *plan_.mutable_open_rounds(f);
    open.set_fragment(f);
    open.set_version(version);
    open.set_slot_count(3);
    open.set_slot_index(kSlot);
    if (open.slots().empty()) open.add_slots()->set_slot(kSlot);
    v1::SlotPlan& ours = *open.mutable_slots(0);
    if (!anew) return;
    ours.set_step_count(2);
    ours.set_start_step(2 * version);
    ours.set_data_shard(kSlot);
  }
  // Another island's contribution, or ours, makes the next version.
  void Commit(int32_t f = 0, bool ours = false) {
    Advance(f);
    if (ours) Decide(f, v1::OUTCOME_MERGED);
    Stand(f, Version(f), ours);
    Publish();
  }
  void Decide(int32_t f, v1::Outcome outcome) {
    ShapedPlan::Decide(f, seq_, outcome);
  }

  std::string Do() {
    const Action action = loop_.Next();
    std::string line = ActionName(action.kind);
    if (action.kind == ActionKind::kPull) {
      absl::StrAppend(&line, " f", action.fragment, " v", action.version);
    } else if (action.kind == ActionKind::kTrain) {
      absl::StrAppend(&line, " ", action.step, " @", action.data_position);
    } else if (action.kind == ActionKind::kContribute) {
      seq_ = action.seq;
      absl::StrAppend(&line, " x", action.step_count);
      for (const AnchoredFragment& at : action.contributions) {
        absl::StrAppend(&line, " f", at.fragment, " v", at.anchor_version);
      }
    } else if (action.kind == ActionKind::kEvaluate) {
      absl::StrAppend(&line, " v", action.version, " c", action.commit_seq);
    }
    if (action.kind != ActionKind::kWait) {
      loop_.OnDone(action, absl::OkStatus());
    }
    return line;
  }
  std::string DoAll() {
    std::string lines;
    for (int i = 0; i < 100; ++i) {
      const std::string line = Do();
      if (line == "wait") return lines;
      absl::StrAppend(&lines, lines.empty() ? "" : "; ", line);
    }
    ADD_FAILURE() << "does not end: " << lines;
    return lines;
  }

  int64_t seq_ = 0;
};

TEST_F(AsyncIslandTest, GoesOnWhateverOthersCommitAndWaitsForItsOwnOutcome) {
  Begin();
  EXPECT_EQ(Do(), "pull f0 v0");
  EXPECT_EQ(Do(), "report_ready");
  EXPECT_EQ(Do(), "begin_round");
  EXPECT_EQ(Do(), "train 0 @0");
  Commit();
  Commit();
  EXPECT_EQ(Do(), "train 1 @4");
  EXPECT_EQ(Do(), "contribute x2 f0 v0") << "from the anchor that it has";
  EXPECT_EQ(Do(), "push");
  Commit();
  EXPECT_EQ(Do(), "wait") << "another's commit decides nothing of ours";
  Commit(0, /*ours=*/true);
  EXPECT_EQ(Do(), "pull f0 v4");
  EXPECT_EQ(Do(), "begin_round");
  EXPECT_EQ(Do(), "train 8 @8") << "the clock that the plan gives";
}

TEST_F(AsyncIslandTest, PullsOnceHoweverOftenOthersCommitMeanwhile) {
  Begin(2);
  EXPECT_EQ(Do(), "pull f0 v0");
  Commit(0);
  Commit(1);
  EXPECT_EQ(Do(), "pull f1 v1");
  EXPECT_EQ(Do(), "report_ready");
  EXPECT_EQ(Do(), "begin_round");
  EXPECT_EQ(Do(), "train 0 @0");
  EXPECT_EQ(Do(), "train 1 @4");
  EXPECT_EQ(Do(), "contribute x2 f0 v0 f1 v1") << "each from its own anchor";
}

TEST_F(AsyncIslandTest, TakesTheLeastOfWhatItsFragmentsPlansAgreeOn) {
  Begin(2);
  plan_.mutable_open_rounds(1)->mutable_slots(0)->set_step_count(1);
  plan_.mutable_open_rounds(0)->mutable_slots(0)->set_start_step(6);
  Publish();
  EXPECT_EQ(DoAll(),
            "pull f0 v0; pull f1 v0; report_ready; begin_round; train 0 @0; "
            "contribute x1 f0 v0 f1 v0; push; push");
}

TEST_F(AsyncIslandTest, GivesUpARoundThatWouldBeStale) {
  Begin();
  for (int i = 0; i < 4; ++i) Do();  // Up to the first step.
  for (int i = 0; i < 3; ++i) Commit();
  EXPECT_EQ(loop_.Next().kind, ActionKind::kTrain) << "3 is fresh enough";
  Commit();
  EXPECT_EQ(Do(), "pull f0 v4");
  EXPECT_EQ(Do(), "begin_round");
  EXPECT_EQ(Do(), "train 0 @4") << "what it has read is not read again";
}

TEST_F(AsyncIslandTest, DoesNotBeginFromWhatHasGrownStaleSinceItWasPulled) {
  Begin();
  EXPECT_EQ(Do(), "pull f0 v0");
  EXPECT_EQ(Do(), "report_ready");
  for (int i = 0; i < 4; ++i) Commit();
  EXPECT_EQ(DoAll(),
            "pull f0 v4; begin_round; train 0 @0; train 1 @4; contribute x2 f0 "
            "v4; push");
}

TEST_F(AsyncIslandTest, CarriesOnAfterStaleAndStartsAfreshAfterRejected) {
  Begin();
  DoAll();
  Decide(0, v1::OUTCOME_STALE);
  Commit();
  EXPECT_EQ(Do(), "pull f0 v1");
  EXPECT_EQ(DoAll(),
            "begin_round; train 0 @8; train 1 @12; contribute x2 f0 v1; push");
  Decide(0, v1::OUTCOME_REJECTED);
  Publish();
  EXPECT_EQ(Do(), "reset_optimizer");
}

TEST_F(AsyncIslandTest, DoesNotWaitForAnOutcomeThatCannotCome) {
  Begin();
  DoAll();  // Waits; no shard has heard of it.
  for (int i = 0; i < 3; ++i) Commit();
  EXPECT_EQ(Do(), "wait");
  Commit();
  EXPECT_EQ(Do(), "pull f0 v4");
}

TEST_F(AsyncIslandTest, GoesOnFromASaveWhateverHasBeenMergedSince) {
  SaveSummary save;
  save.run_id = kRun;
  save.run_epoch = 1;
  save.slot = kSlot;
  save.seq = seq_ = 7;
  save.contributions = {{0, 2}};
  save.data_shard = kSlot;
  save.data_position = 40;
  const auto restart = [&](int64_t cut, v1::Outcome outcome) {
    NewLoop();
    plan_.clear_cut();
    plan_.clear_open_rounds();
    plan_.clear_outcomes();
    AddFragment(cut);
    plan_.set_commit_seq(cut);
    Stand(0, cut);
    if (outcome != v1::OUTCOME_UNSPECIFIED) Decide(0, outcome);
    Join();
    loop_.OnSaveLoaded(save);
    Do();
    return Do();
  };
  EXPECT_EQ(restart(5, v1::OUTCOME_UNSPECIFIED), "push") << "still counts";
  EXPECT_EQ(restart(4, v1::OUTCOME_MERGED), "restore_save");
  EXPECT_EQ(restart(6, v1::OUTCOME_UNSPECIFIED), "reset_optimizer");
  EXPECT_EQ(restart(3, v1::OUTCOME_REJECTED), "reset_optimizer");
}

TEST_F(AsyncIslandTest, EvaluatesInItsPeriodsWhatItHolds) {
  join_.mutable_run()->mutable_spec()->mutable_evaluation()
      ->set_every_round_count(4);
  Begin();
  DoAll();
  for (int i = 0; i < 2; ++i) Commit();
  Commit(0, /*ours=*/true);
  EXPECT_EQ(Do(), "pull f0 v3") << "period 0 has no turn";
  EXPECT_EQ(Do(), "begin_round");
  DoAll();
  Commit();
  Commit(0, /*ours=*/true);
  EXPECT_EQ(Do(), "pull f0 v5");
  Commit();  // Changes neither the evaluated version nor its place.
  EXPECT_EQ(Do(), "evaluate v5 c5") << "period 1: index 1 of 3";
  EXPECT_EQ(Do(), "begin_round");
  DoAll();
  Commit(0, /*ours=*/true);
  Do();
  EXPECT_EQ(Do(), "begin_round") << "once a period";
}

TEST_F(AsyncIslandTest, PullsAndEvaluatesTheLastVersionIfItIsItsTurn) {
  join_.mutable_run()->mutable_spec()->mutable_evaluation()
      ->set_every_round_count(4);
  join_.mutable_run()->mutable_spec()->mutable_schedule()->set_round_count(4);
  Begin();
  DoAll();
  for (int i = 0; i < 3; ++i) Commit();
  plan_.clear_open_rounds();
  plan_.mutable_cut(0)->set_version(4);
  plan_.mutable_cut(0)->set_commit_seq(4);
  plan_.set_run_state(v1::RUN_STATE_COMPLETED);
  Publish();
  EXPECT_EQ(Do(), "pull f0 v4");
  EXPECT_EQ(Do(), "evaluate v4 c4") << "4 mod 3 is 1";
  EXPECT_EQ(Do(), "finish");
}

TEST_F(AsyncIslandTest, EndsWhereThePlanSaysThatTheTokensAreSpent) {
  join_.mutable_run()->mutable_spec()->mutable_evaluation()
      ->set_every_round_count(4);
  v1::ScheduleSpec& schedule =
      *join_.mutable_run()->mutable_spec()->mutable_schedule();
  schedule.set_round_count(0);
  schedule.set_token_count(1000);
  Begin();
  DoAll();
  for (int i = 0; i < 3; ++i) Commit();
  plan_.clear_open_rounds();
  plan_.mutable_cut(0)->set_version(4);
  plan_.mutable_cut(0)->set_commit_seq(4);
  plan_.add_ended_fragments(0);
  Decide(0, v1::OUTCOME_CANCELLED);
  plan_.set_run_state(v1::RUN_STATE_COMPLETED);
  Publish();
  EXPECT_EQ(Do(), "pull f0 v4");
  EXPECT_EQ(Do(), "evaluate v4 c4") << "4 mod 3 is 1";
  EXPECT_EQ(Do(), "finish");
}

TEST_F(AsyncIslandTest, TrainsForTheFragmentsThatGoOnAlone) {
  v1::ScheduleSpec& schedule =
      *join_.mutable_run()->mutable_spec()->mutable_schedule();
  schedule.set_round_count(0);
  schedule.set_token_count(1000);
  Begin(2);
  DoAll();
  plan_.add_ended_fragments(0);
  plan_.mutable_open_rounds()->DeleteSubrange(0, 1);
  plan_.mutable_cut(0)->set_version(1);
  plan_.set_commit_seq(2);
  plan_.mutable_cut(0)->set_commit_seq(1);
  Decide(0, v1::OUTCOME_CANCELLED);
  plan_.mutable_cut(1)->set_version(1);
  plan_.mutable_cut(1)->set_commit_seq(2);
  Decide(1, v1::OUTCOME_MERGED);
  plan_.mutable_open_rounds(0)->set_version(1);
  plan_.mutable_open_rounds(0)->mutable_slots(0)->set_start_step(2);
  Publish();
  EXPECT_THAT(DoAll(), testing::HasSubstr("contribute x2 f1 v1"));
}

TEST_F(AsyncIslandTest, OnHoldItKeepsItsPlaceAndFinishesAfterItsOutcome) {
  Begin();
  EXPECT_EQ(DoAll(),
            "pull f0 v0; report_ready; begin_round; train 0 @0; train 1 @4; "
            "contribute x2 f0 v0; push");
  Commit(0, /*ours=*/true);
  loop_.OnHold("pause");
  EXPECT_EQ(DoAll(), "pull f0 v1") << "begins no round";
  loop_.OnHold("");
  EXPECT_EQ(Do(), "begin_round");
  loop_.OnFinish();
  EXPECT_EQ(DoAll(), "train 2 @8; train 3 @12; contribute x2 f0 v1; push");
  Commit();
  EXPECT_EQ(Do(), "wait") << "another's commit";
  Commit(0, /*ours=*/true);
  EXPECT_EQ(Do(), "leave");
  EXPECT_EQ(Do(), "finish");
}

}  // namespace
}  // namespace atl::worker
