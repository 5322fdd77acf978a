#include "worker/core/island_loop.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status/refusal.h"
#include "gtest/gtest.h"
#include "worker/core/data_awaited.h"
#include "worker/core/testing/own_slot.h"
#include "worker/core/testing/shaped_plan.h"

namespace atl::worker {
namespace {

// A run of strict rounds on two servers.
class IslandLoopTest : public IslandLoopFixture {
 protected:
  IslandLoopTest() {
    Schedule().set_timing(v1::TIMING_STRICT);
    Schedule().set_inner_step_count(2);
    Schedule().set_round_count(5);
    plan_.set_placement_epoch(1);
    plan_.add_shards()->set_address("b:1");
    AddFragment();
  }

  void Commit(int32_t fragment) {
    Close(fragment);
    Advance(fragment);
  }
  void Open(int32_t fragment, std::vector<int32_t> slots = {0, kSlot}) {
    v1::OpenRound& open = *plan_.add_open_rounds();
    open.set_fragment(fragment);
    open.set_version(plan_.cut(fragment).version());
    for (const int32_t slot : slots) {
      v1::SlotPlan& slot_plan = *open.add_slots();
      slot_plan.set_slot(slot);
      slot_plan.set_step_count(2);
      slot_plan.set_start_step(2 * open.version());
      slot_plan.set_data_shard(slot);
    }
    KeepOwnSlot(plan_.slot(), open);
  }
  static std::string Line(const Action& action) {
    std::string line = ActionName(action.kind);
    switch (action.kind) {
      case ActionKind::kWait:
        if (action.failure_count > 0) {
          absl::StrAppend(&line, " after ", action.failure_count);
        }
        break;
      case ActionKind::kPull:
        absl::StrAppend(&line, " f", action.fragment, " v", action.version);
        break;
      case ActionKind::kReportReady:
        absl::StrAppend(&line, " ", action.commit_seq);
        break;
      case ActionKind::kTrain:
        absl::StrAppend(&line, " ", action.step, " @", action.data_shard, ":",
                        action.data_position);
        break;
      case ActionKind::kContribute:
        absl::StrAppend(&line, " #", action.seq, " x", action.step_count, " [",
                        action.data_begin, ",", action.data_position, ")");
        for (const AnchoredFragment& at : action.contributions) {
          absl::StrAppend(&line, " f", at.fragment, " v", at.anchor_version);
        }
        break;
      case ActionKind::kPush:
        absl::StrAppend(&line, " f", action.fragment, " #", action.seq);
        break;
      case ActionKind::kResetOptimizer:
        if (action.warm_up) line += " warm";
        break;
      case ActionKind::kEvaluate:
        absl::StrAppend(&line, " v", action.version);
        break;
      case ActionKind::kFinish:
        absl::StrAppend(&line, " ", absl::StatusCodeToString(
                                        action.status.code()));
        break;
      default:
        break;
    }
    return line;
  }
  std::string Trace(int action_count_max = 100) {
    std::vector<std::string> lines;
    for (int i = 0; i < action_count_max; ++i) {
      const Action action = loop_.Next();
      lines.push_back(Line(action));
      if (action.kind == ActionKind::kWait ||
          action.kind == ActionKind::kFinish) {
        break;
      }
      if (action.kind == ActionKind::kLoadSave) {
        loop_.OnSaveLoaded(save_);
      } else {
        loop_.OnDone(action, absl::OkStatus());
      }
    }
    return absl::StrJoin(lines, "; ");
  }
  std::string NextLine() { return Line(loop_.Next()); }
  std::string Unpushed() {
    std::vector<std::string> lines;
    for (const v1::UnpushedWork& work : loop_.TakeUnpushed()) {
      lines.push_back(absl::StrCat(
          "f", work.fragment(), " v", work.version(), " x", work.step_count(),
          work.seq() > 0 ? absl::StrCat(" #", work.seq()) : ""));
    }
    return absl::StrJoin(lines, "; ");
  }
  void Fail(absl::StatusCode code) {
    loop_.OnDone(loop_.Next(), absl::Status(code, "test"));
  }
  void PushFirst() {
    Open(0);
    Join();
    EXPECT_EQ(Trace(),
              "load_save; pull f0 v0; report_ready 0; begin_round; "
              "train 0 @1:0; train 1 @1:4; contribute #1 x2 [0,8) f0 v0; "
              "push f0 #1; wait");
  }
  // The first contribution is committed, and the run is complete.
  void CompleteWithFirst() {
    PushFirst();
    Commit(0);
    plan_.set_run_state(v1::RUN_STATE_COMPLETED);
    Publish();
  }
  // The first step of the first round finds no data.
  void AwaitData() {
    Open(0);
    Join();
    EXPECT_EQ(Trace(4), "load_save; pull f0 v0; report_ready 0; begin_round");
    loop_.OnDone(loop_.Next(), DataAwaited("file a, 3 %"));
  }
  SaveSummary MakeSave(int64_t seq, int64_t anchor_version) {
    SaveSummary save;
    save.run_id = kRun;
    save.run_epoch = 1;
    save.slot = kSlot;
    save.seq = seq;
    save.contributions = {{0, anchor_version}};
    save.data_shard = kSlot;
    save.data_position = 80;
    return save;
  }

  std::optional<SaveSummary> save_;
};

TEST_F(IslandLoopTest, WaitsUntilItHasJoinedAndTheRunHasStarted) {
  EXPECT_EQ(NextLine(), "wait");
  plan_.set_run_state(v1::RUN_STATE_STARTING);
  plan_.clear_cut();
  Join();
  EXPECT_EQ(Trace(), "load_save; wait");
}

TEST_F(IslandLoopTest, FollowsRoundAfterRound) {
  PushFirst();
  Decide(0, 1, v1::OUTCOME_MERGED);
  Commit(0);
  Open(0);
  Publish();
  EXPECT_EQ(Trace(),
            "pull f0 v1; begin_round; train 2 @1:8; train 3 @1:12; "
            "contribute #2 x2 [8,16) f0 v1; push f0 #2; wait");
}

TEST_F(IslandLoopTest, PullsAtTheCommitAndBeginsAtTheOpen) {
  PushFirst();
  Commit(0);
  Publish();
  EXPECT_EQ(Trace(), "pull f0 v1; wait");
  Open(0);
  Publish();
  EXPECT_EQ(Trace(2), "begin_round; train 2 @1:8");
}

TEST_F(IslandLoopTest, FinishesWithTheRun) {
  CompleteWithFirst();
  EXPECT_EQ(Trace(), "finish OK");
  EXPECT_FALSE(loop_.left());
}

TEST_F(IslandLoopTest, LeavesACompleteRunIfItIsStoppedBeforeTheFinalVersions) {
  loop_.set_shows_end(true);
  CompleteWithFirst();
  loop_.OnStopRequested();
  EXPECT_EQ(Trace(), "leave; finish OK");
  EXPECT_TRUE(loop_.left());
}

TEST_F(IslandLoopTest, ShowsTheRunsParametersBeforeItFinishes) {
  loop_.set_shows_end(true);
  CompleteWithFirst();
  EXPECT_EQ(Trace(1), "pull f0 v1");
  const Action show = loop_.Next();
  EXPECT_EQ(Line(show), "evaluate v1");
  EXPECT_TRUE(show.only_show);
  EXPECT_EQ(show.cut.size(), 1);
  // Best effort.
  loop_.OnDone(show, absl::UnavailableError("test"));
  EXPECT_EQ(Trace(), "finish OK");
}

TEST_F(IslandLoopTest, AnIslandThatEvaluatesTheEndAlsoShowsIt) {
  loop_.set_shows_end(true);
  Schedule().set_round_count(1);
  join_.mutable_run()
      ->mutable_spec()
      ->mutable_evaluation()
      ->set_every_round_count(1);
  CompleteWithFirst();
  EXPECT_EQ(Trace(1), "pull f0 v1");
  const Action evaluate = loop_.Next();
  EXPECT_FALSE(evaluate.only_show);
  loop_.OnDone(evaluate, absl::OkStatus());
  EXPECT_TRUE(loop_.Next().only_show);
  EXPECT_EQ(Trace(), "evaluate v1; finish OK");
}

// Servers may be gone once the run is complete.
TEST_F(IslandLoopTest, FinishesIfTheRunsParametersCannotBePulled) {
  loop_.set_shows_end(true);
  CompleteWithFirst();
  for (int i = 0; i < IslandLoop::kShowFailuresMax; ++i) {
    EXPECT_EQ(NextLine(), "pull f0 v1");
    Fail(absl::StatusCode::kUnavailable);
    loop_.OnWaited();
  }
  EXPECT_EQ(Trace(), "finish OK");
}

TEST_F(IslandLoopTest, EvaluatesWhenItIsItsTurn) {
  auto& evaluation = *join_.mutable_run()->mutable_spec()->mutable_evaluation();
  evaluation.set_every_round_count(1);
  PushFirst();
  // Version 1 belongs to index 1 of two slots.
  Commit(0);
  Open(0);
  Publish();
  EXPECT_EQ(Trace(3), "pull f0 v1; evaluate v1; begin_round");
  Trace();
  // Version 2 is the other's.
  Commit(0);
  Open(0);
  Publish();
  EXPECT_EQ(Trace(2), "pull f0 v2; begin_round");
}

TEST_F(IslandLoopTest, TheCoordinatorMayGiveTheTurnsToOtherIslands) {
  auto& evaluation = *join_.mutable_run()->mutable_spec()->mutable_evaluation();
  evaluation.set_every_round_count(1);
  const auto open = [this](int32_t index) {
    Open(0);
    v1::OpenRound& told = *plan_.mutable_open_rounds()->rbegin();
    told.set_evaluator_count(1);
    told.set_evaluator_index(index);
  };
  open(-1);
  Join();
  Trace();
  Commit(0);
  open(0);
  Publish();
  EXPECT_EQ(Trace(2), "pull f0 v1; begin_round") << "no turn";
  Trace();
  Commit(0);
  open(0);
  Publish();
  EXPECT_EQ(Trace(3), "pull f0 v2; evaluate v2; begin_round");
}

TEST_F(IslandLoopTest, EvaluatesTheLastVersionBeforeItFinishes) {
  Schedule().set_round_count(1);
  auto& evaluation = *join_.mutable_run()->mutable_spec()->mutable_evaluation();
  evaluation.set_every_round_count(10);
  CompleteWithFirst();
  EXPECT_EQ(Trace(), "pull f0 v1; evaluate v1; finish OK");
}

TEST_F(IslandLoopTest, BacksOffAfterAPushThatFailed) {
  Open(0);
  Join();
  Trace(7);
  EXPECT_EQ(NextLine(), "push f0 #1");
  Fail(absl::StatusCode::kUnavailable);
  EXPECT_EQ(NextLine(), "wait after 1");
  loop_.OnWaited();
  EXPECT_EQ(NextLine(), "push f0 #1");
  Fail(absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(NextLine(), "wait after 2");
  Publish();
  EXPECT_EQ(NextLine(), "push f0 #1");
}

TEST_F(IslandLoopTest, EndsIfAServerHoldsAnotherRun) {
  Open(0);
  Join();
  Trace(7);
  ASSERT_EQ(NextLine(), "push f0 #1");
  const Action push = loop_.Next();
  loop_.OnDone(push, Refuse(absl::StatusCode::kFailedPrecondition, "OTHER_RUN",
                            "another run"));
  EXPECT_EQ(NextLine(), "finish FAILED_PRECONDITION");
}

TEST_F(IslandLoopTest, WaitsForTheOutcomeOfARefusedContribution) {
  Open(0);
  Join();
  Trace(7);
  loop_.OnDone(loop_.Next(),
               Refuse(absl::StatusCode::kInvalidArgument,
                      "CONTRIBUTION_REFUSED", "test"));
  loop_.OnWaited();
  EXPECT_EQ(NextLine(), "wait");
  Decide(0, 1, v1::OUTCOME_REJECTED);
  Commit(0);
  Open(0);
  Publish();
  EXPECT_EQ(Trace(3), "pull f0 v1; begin_round; train 2 @1:8");
}

// As a server whose address cannot be dialled until it starts again, or a
// certificate that is being written.
TEST_F(IslandLoopTest, PushesAgainAfterAnErrorOfThisMachine) {
  Open(0);
  Join();
  Trace(7);
  ASSERT_EQ(NextLine(), "push f0 #1");
  Fail(absl::StatusCode::kInvalidArgument);
  loop_.OnWaited();
  EXPECT_EQ(NextLine(), "push f0 #1");
}

TEST_F(IslandLoopTest, StartsAfreshIfARoundThatItWasInOpensAgain) {
  PushFirst();
  Decide(0, 1, v1::OUTCOME_DROPPED);
  Publish();
  EXPECT_EQ(Trace(4),
            "reset_optimizer; begin_round; train 0 @1:8; train 1 @1:12");
  EXPECT_EQ(Trace(2), "contribute #2 x2 [8,16) f0 v0; push f0 #2");
}

TEST_F(IslandLoopTest, PushesAgainToAShardInANewLife) {
  PushFirst();
  plan_.mutable_shards(1)->set_incarnation(2);
  Publish();
  EXPECT_EQ(Trace(), "push f0 #1; wait");
}

TEST_F(IslandLoopTest, PushesTheSameAgainForEveryPlanThatSaysAShardLostIt) {
  PushFirst();
  v1::ContributionKey& key = *plan_.add_needs_repush();
  key.set_run_epoch(1);
  key.set_slot(kSlot);
  key.set_seq(1);
  Publish();
  EXPECT_TRUE(loop_.Next().needs_repush);
  EXPECT_EQ(Trace(), "push f0 #1; wait");
  EXPECT_EQ(NextLine(), "wait");
  Publish();
  EXPECT_EQ(Trace(), "push f0 #1; wait");
  // Also while paused, when nothing else is pushed.
  plan_.set_run_state(v1::RUN_STATE_PAUSED);
  Publish();
  EXPECT_EQ(Trace(), "push f0 #1; wait");
  plan_.clear_needs_repush();
  Publish();
  EXPECT_EQ(Trace(), "wait");
}

TEST_F(IslandLoopTest, PushesNothingAgainThatIsNotItsOwnOrIsDecided) {
  PushFirst();
  v1::ContributionKey& key = *plan_.add_needs_repush();
  key.set_run_epoch(1);
  key.set_slot(kSlot);
  key.set_seq(2);
  Publish();
  EXPECT_EQ(Trace(), "wait");
  key.set_seq(1);
  key.set_fragment(1);
  Publish();
  EXPECT_EQ(Trace(), "wait");
  key.set_fragment(0);
  Commit(0);
  Publish();
  EXPECT_EQ(Trace(), "pull f0 v1; wait");
}

TEST_F(IslandLoopTest, AnOutcomeOfAnotherSlotOrRunEpochIsNotItsOwn) {
  PushFirst();
  Decide(0, 1, v1::OUTCOME_REJECTED);
  v1::ContributionKey& key = *plan_.mutable_outcomes(0)->mutable_key();
  key.set_slot(0);
  Publish();
  EXPECT_EQ(Trace(), "wait");
  key.set_slot(kSlot);
  key.set_run_epoch(0);
  Publish();
  EXPECT_EQ(Trace(), "wait");
  key.set_run_epoch(1);
  Publish();
  EXPECT_EQ(Trace(2), "reset_optimizer; begin_round");
}

TEST_F(IslandLoopTest, APushOfWhatWasBeforeProvesNothing) {
  PushFirst();
  Commit(0);
  Open(0);
  Publish();
  EXPECT_EQ(Trace(5),
            "pull f0 v1; begin_round; train 2 @1:8; train 3 @1:12; "
            "contribute #2 x2 [8,16) f0 v1");
  Action late = MakeAction(ActionKind::kPush, "of #1");
  late.fragment = 0;
  late.seq = 1;
  loop_.OnDone(late, absl::OkStatus());
  EXPECT_EQ(NextLine(), "push f0 #2");
}

TEST_F(IslandLoopTest, PushesAgainAfterACoordinatorRestart) {
  PushFirst();
  plan_.set_coordinator_epoch(2);
  plan_.set_revision(-1);
  Publish();
  EXPECT_EQ(Trace(), "report_ready 0; push f0 #1; wait");
}

TEST_F(IslandLoopTest, AbandonsARoundThatWentOnWithoutIt) {
  Open(0);
  Join();
  Trace(5);
  Commit(0);
  Open(0);
  Publish();
  // Windows that were read stay read.
  EXPECT_EQ(Trace(3), "pull f0 v1; begin_round; train 2 @1:4");
}

TEST_F(IslandLoopTest, TellsTheWorkOfARoundThatWentOnWithoutIt) {
  Open(0);
  Join();
  Trace(4);
  Action train = loop_.Next();
  train.done_step_count = 2;
  train.done_token_count = 40;
  loop_.OnDone(train, absl::OkStatus());
  EXPECT_EQ(Unpushed(), "");
  Commit(0);
  Publish();
  const std::vector<v1::UnpushedWork> told = loop_.TakeUnpushed();
  ASSERT_EQ(told.size(), 1);
  EXPECT_EQ(told[0].step_count(), 2);
  EXPECT_EQ(told[0].token_count(), 40);
  EXPECT_EQ(told[0].run_epoch(), 1);
  EXPECT_EQ(told[0].version(), 0);
  EXPECT_EQ(told[0].seq(), 0);
  EXPECT_EQ(Unpushed(), "");  // Once.
}

TEST_F(IslandLoopTest, TellsTheWorkOfTheFragmentThatLeftTheRound) {
  AddFragment(0);
  Open(0);
  Open(1);
  Join();
  Trace(6);
  Commit(0);
  Publish();
  EXPECT_EQ(Unpushed(), "f0 v0 x1");
  Trace(2);
  EXPECT_EQ(Unpushed(), "");
}

// A contribution gets an outcome once a shard has it; before, nobody else knows
// of it.
TEST_F(IslandLoopTest, AContributionIsUnpushedWorkUntilShardsHaveIt) {
  Open(0);
  Join();
  Trace(7);
  ASSERT_EQ(NextLine(), "push f0 #1");
  Commit(0);
  Publish();
  EXPECT_EQ(Unpushed(), "f0 v0 x2 #1");
}

TEST_F(IslandLoopTest, APushThatAPlanStopsIsUnpushedWorkAndNoFailure) {
  Open(0);
  Join();
  Trace(7);
  ASSERT_EQ(NextLine(), "push f0 #1");
  Fail(absl::StatusCode::kCancelled);
  EXPECT_EQ(NextLine(), "push f0 #1");
  Commit(0);
  Publish();
  EXPECT_EQ(Unpushed(), "f0 v0 x2 #1");
}

TEST_F(IslandLoopTest, AContributionThatShardsHaveIsNoUnpushedWork) {
  PushFirst();
  Commit(0);
  Publish();
  EXPECT_EQ(Unpushed(), "");
}

TEST_F(IslandLoopTest, AContributionWithAnOutcomeIsNoUnpushedWork) {
  Open(0);
  Join();
  Trace(7);
  Decide(0, 1, v1::OUTCOME_LATE);
  Commit(0);
  Publish();
  EXPECT_EQ(Unpushed(), "");
}

TEST_F(IslandLoopTest, TellsTheWorkThatItLeavesBehind) {
  Open(0);
  Join();
  Trace(5);
  loop_.OnStopRequested();
  ASSERT_EQ(NextLine(), "leave");
  loop_.OnLeaving();
  EXPECT_EQ(Unpushed(), "f0 v0 x1");
  EXPECT_EQ(Trace(), "leave; finish OK");
}

TEST_F(IslandLoopTest, TellsTheWorkThatARestoreTakes) {
  Open(0);
  Join();
  Trace(5);
  plan_.set_run_epoch(2);
  plan_.set_commit_seq(9);
  Publish();
  const std::vector<v1::UnpushedWork> told = loop_.TakeUnpushed();
  ASSERT_EQ(told.size(), 1);
  EXPECT_EQ(told[0].run_epoch(), 1);
  EXPECT_EQ(told[0].step_count(), 1);
  EXPECT_EQ(told[0].island_epoch(), 1);
  EXPECT_EQ(told[0].number(), 1);
}

// The coordinator may not have heard of it in time.
TEST_F(IslandLoopTest, TellsTheContributionThatARestoreTakesFromShards) {
  PushFirst();
  plan_.set_run_epoch(2);
  plan_.set_commit_seq(9);
  Publish();
  EXPECT_EQ(Unpushed(), "f0 v0 x2 #1");
}

TEST_F(IslandLoopTest, TellsTheWorkOfASavedContribution) {
  save_ = MakeSave(7, 0);
  save_->step_count = 2;
  save_->token_count = 40;
  Open(0);
  Join();
  ASSERT_EQ(Trace(2), "load_save; report_ready 0");
  Commit(0);
  Publish();
  EXPECT_EQ(Unpushed(), "f0 v0 x2 #7");
}

// Its round went on while no process ran.
TEST_F(IslandLoopTest, TellsTheWorkOfASaveThatDoesNotFit) {
  save_ = MakeSave(7, 0);
  save_->step_count = 2;
  save_->token_count = 40;
  Open(0);
  Commit(0);
  Join();
  Trace(2);
  EXPECT_EQ(Unpushed(), "f0 v0 x2 #7");
  NewLoop();
  Decide(0, 7, v1::OUTCOME_LATE);
  Join();
  Trace(2);
  EXPECT_EQ(Unpushed(), "");
}

TEST_F(IslandLoopTest, TellsAgainWhatTheProcessBeforeMayNotHaveTold) {
  save_ = MakeSave(7, 0);
  v1::UnpushedWork& work = save_->unpushed.emplace_back();
  work.set_version(3);
  work.set_step_count(5);
  work.set_run_epoch(1);
  work.set_island_epoch(1);
  work.set_number(8);
  Open(0);
  Join();
  Trace(1);
  const std::vector<v1::UnpushedWork> told = loop_.TakeUnpushed();
  ASSERT_EQ(told.size(), 1);
  EXPECT_EQ(told[0].ShortDebugString(), work.ShortDebugString());
}

TEST_F(IslandLoopTest, GoesAheadWhileAShardIsAwayIfTheRunIsElastic) {
  Schedule().set_timing(v1::TIMING_ELASTIC);
  Schedule().set_max_ahead_steps(3);
  Open(0);
  plan_.mutable_shards(0)->clear_address();
  Join();
  EXPECT_EQ(Trace(9),
            "load_save; pull f0 v0; report_ready 0; begin_round; "
            "train 0 @1:0; train 1 @1:4; train 2 @1:8; train 3 @1:12; "
            "train 4 @1:16");
  EXPECT_EQ(NextLine(), "contribute #1 x5 [0,20) f0 v0");
}

TEST_F(IslandLoopTest, StopsGoingAheadWhenTheShardIsBack) {
  Schedule().set_timing(v1::TIMING_ELASTIC);
  Schedule().set_max_ahead_steps(3);
  Open(0);
  Join();
  loop_.OnConnection(false);
  Trace(7);
  loop_.OnConnection(true);
  EXPECT_EQ(NextLine(), "contribute #1 x3 [0,12) f0 v0");
}

TEST_F(IslandLoopTest, StopsAtThePlannedStepIfTheRunIsStrict) {
  Schedule().set_max_ahead_steps(3);
  Open(0);
  Join();
  loop_.OnConnection(false);
  Trace(6);
  EXPECT_EQ(NextLine(), "contribute #1 x2 [0,8) f0 v0");
}

TEST_F(IslandLoopTest, DoesNothingWhileTheRunIsPaused) {
  Open(0);
  Join();
  Trace(5);
  plan_.set_run_state(v1::RUN_STATE_PAUSED);
  Publish();
  EXPECT_EQ(NextLine(), "wait");
  plan_.set_run_state(v1::RUN_STATE_ACTIVE);
  Publish();
  EXPECT_EQ(NextLine(), "train 1 @1:4");
}

TEST_F(IslandLoopTest, FinishesWhenTheRunIsCancelled) {
  PushFirst();
  plan_.set_run_state(v1::RUN_STATE_CANCELLED);
  Publish();
  EXPECT_EQ(NextLine(), "finish CANCELLED");
}

TEST_F(IslandLoopTest, IsNotSampled) {
  Schedule().set_sample_fraction(0.5);
  Open(0, {0});
  Join();
  EXPECT_EQ(Trace(), "load_save; pull f0 v0; report_ready 0; wait");
  // A fragment that the island is not asked to train is not pulled.
  Commit(0);
  Open(0, {0});
  Publish();
  EXPECT_EQ(NextLine(), "wait");
  Commit(0);
  Open(0, {kSlot});
  Publish();
  EXPECT_EQ(Trace(3), "pull f0 v2; begin_round; train 4 @1:0");
}

TEST_F(IslandLoopTest, GoesOnWhereADataShardWasReadTo) {
  Open(0);
  Join();
  Trace(5);
  Commit(0);
  Open(0);
  // Another island read this data shard meanwhile.
  plan_.mutable_open_rounds(0)->mutable_slots(0)->set_data_position(100);
  Publish();
  EXPECT_EQ(Trace(3), "pull f0 v1; begin_round; train 2 @1:100");
  Commit(0);
  Open(0);
  plan_.mutable_open_rounds(0)->mutable_slots(0)->set_data_shard(2);
  plan_.mutable_open_rounds(0)->mutable_slots(0)->set_data_position(7);
  Publish();
  EXPECT_EQ(Trace(3), "pull f0 v2; begin_round; train 4 @2:7");
}

TEST_F(IslandLoopTest, ContributesAllFragmentsAtOneStep) {
  AddFragment(0);
  Open(0);
  Open(1);
  Join();
  EXPECT_EQ(Trace(),
            "load_save; pull f0 v0; pull f1 v0; report_ready 0; begin_round; "
            "train 0 @1:0; train 1 @1:4; contribute #1 x2 [0,8) f0 v0 f1 v0; "
            "push f0 #1; push f1 #1; wait");
  // One commits: nothing is pulled or begun before the other does.
  Commit(0);
  Open(0);
  Publish();
  EXPECT_EQ(NextLine(), "wait");
  Commit(1);
  Publish();
  EXPECT_EQ(Trace(), "pull f0 v1; pull f1 v1; wait");
  Open(1);
  Publish();
  EXPECT_EQ(Trace(2), "begin_round; train 2 @1:8");
}

TEST_F(IslandLoopTest, ContributesWhatItIsExpectedFor) {
  // The island joined when fragment 0 was open already.
  AddFragment(0);
  Open(0, {0});
  Open(1);
  Join();
  Trace(7);
  EXPECT_EQ(NextLine(), "contribute #1 x2 [0,8) f1 v0");
}

TEST_F(IslandLoopTest, TakesTheOldestRoundFirst) {
  AddFragment(1);
  Open(0);
  Open(1);
  Join();
  EXPECT_EQ(Trace(),
            "load_save; pull f0 v0; pull f1 v1; report_ready 0; begin_round; "
            "train 0 @1:0; train 1 @1:4; contribute #1 x2 [0,8) f0 v0; "
            "push f0 #1; wait");
}

TEST_F(IslandLoopTest, GoesOnWithTheRestOfARoundThatOneFragmentHasLeft) {
  AddFragment(0);
  Open(0);
  Open(1);
  Join();
  Trace(6);
  Commit(0);
  Publish();
  EXPECT_EQ(Trace(2), "train 1 @1:4; contribute #1 x2 [0,8) f1 v0");
}

TEST_F(IslandLoopTest, ARestartPushesTheSavedContribution) {
  save_ = MakeSave(7, 0);
  join_.set_next_seq(9);
  Open(0);
  Join();
  EXPECT_EQ(Trace(), "load_save; report_ready 0; push f0 #7; wait");
  Decide(0, 7, v1::OUTCOME_MERGED);
  Commit(0);
  Open(0);
  Publish();
  EXPECT_EQ(Trace(4),
            "pull f0 v1; restore_save; begin_round; train 2 @1:80");
  Trace(1);
  EXPECT_EQ(NextLine(), "contribute #9 x2 [80,88) f0 v1");
}

TEST_F(IslandLoopTest, ARestartAfterTheCommitGoesOnWithTheSavedOptimizer) {
  save_ = MakeSave(7, 0);
  Commit(0);
  Decide(0, 7, v1::OUTCOME_MERGED);
  Open(0);
  Join();
  EXPECT_EQ(Trace(6),
            "load_save; pull f0 v1; restore_save; report_ready 1; "
            "begin_round; train 2 @1:80");
}

TEST_F(IslandLoopTest, ARestartWithoutASaveStartsAfreshWithAWarmUp) {
  join_.set_data_position(40);
  Commit(0);
  Open(0);
  Join();
  EXPECT_EQ(Trace(6),
            "load_save; pull f0 v1; reset_optimizer warm; report_ready 1; "
            "begin_round; train 2 @1:40");
}

TEST_F(IslandLoopTest, ASaveThatDoesNotFitIsNotUsed) {
  Commit(0);
  Commit(0);
  Open(0);
  Decide(0, 7, v1::OUTCOME_MERGED);
  for (SaveSummary bad : {MakeSave(7, 0), MakeSave(6, 1), MakeSave(7, 5)}) {
    NewLoop();
    save_ = bad;
    Join();
    EXPECT_EQ(Trace(3), "load_save; pull f0 v2; reset_optimizer warm");
  }
  for (int i = 0; i < 3; ++i) {
    SaveSummary bad = MakeSave(7, 1);
    if (i == 0) bad.run_id = "other";
    if (i == 1) bad.slot = 0;
    if (i == 2) bad.run_epoch = 2;
    NewLoop();
    save_ = bad;
    Join();
    EXPECT_EQ(Trace(3), "load_save; pull f0 v2; reset_optimizer warm");
  }
}

TEST_F(IslandLoopTest, ASaveThatWasDecidedAgainstIsNotUsed) {
  save_ = MakeSave(7, 0);
  Commit(0);
  Open(0);
  Decide(0, 7, v1::OUTCOME_LATE);
  Join();
  EXPECT_EQ(Trace(3), "load_save; pull f0 v1; reset_optimizer warm");
}

TEST_F(IslandLoopTest, ASecondJoinKeepsWhatIsInMemory) {
  PushFirst();
  join_.set_island_epoch(2);
  join_.set_next_seq(50);
  plan_.set_island_epoch(2);
  Join();
  EXPECT_EQ(Trace(), "report_ready 0; push f0 #1; wait");
  Commit(0);
  Open(0);
  Publish();
  EXPECT_EQ(Trace(4), "pull f0 v1; begin_round; train 2 @1:8; train 3 @1:12");
  EXPECT_EQ(NextLine(), "contribute #50 x2 [8,16) f0 v1");
}

TEST_F(IslandLoopTest, SeqsBeginAtOneWhateverTheJoinSays) {
  join_.set_next_seq(0);
  PushFirst();
}

TEST_F(IslandLoopTest, ASecondJoinGivesNoSeqASecondTime) {
  PushFirst();
  join_.set_island_epoch(2);
  join_.set_next_seq(1);  // A coordinator that does not know of #1.
  plan_.set_island_epoch(2);
  Join();
  Trace();
  Commit(0);
  Open(0);
  Publish();
  Trace(4);
  EXPECT_EQ(NextLine(), "contribute #2 x2 [8,16) f0 v1");
}

TEST_F(IslandLoopTest, ASecondJoinWithAnotherSlotDropsEverything) {
  PushFirst();
  join_.set_island_epoch(2);
  join_.set_slot(0);
  join_.set_data_shard(0);
  plan_.set_slot(0);
  plan_.set_island_epoch(2);
  Close(0);
  Open(0);
  Join();
  EXPECT_EQ(Trace(5),
            "pull f0 v0; reset_optimizer; report_ready 0; begin_round; "
            "train 0 @0:0");
}

TEST_F(IslandLoopTest, ARestoredRunDropsEverything) {
  PushFirst();
  plan_.set_run_epoch(2);
  plan_.set_commit_seq(9);
  Publish();
  EXPECT_EQ(Trace(4),
            "pull f0 v0; reset_optimizer warm; report_ready 0; begin_round");
  EXPECT_EQ(NextLine(), "train 0 @1:0");
}

TEST_F(IslandLoopTest, EndsWhenAnotherProcessIsTheIsland) {
  PushFirst();
  plan_.set_island_epoch(2);
  Publish();
  EXPECT_EQ(NextLine(), "finish ABORTED");
}

TEST_F(IslandLoopTest, LeavesAtTheFirstStop) {
  Open(0);
  Join();
  Trace(5);
  loop_.OnStopRequested();
  EXPECT_EQ(Trace(), "leave; finish OK");
}

TEST_F(IslandLoopTest, PushesOnBeforeItLeaves) {
  AddFragment(0);
  Open(0);
  Open(1);
  Join();
  Trace(9);
  loop_.OnStopRequested();
  EXPECT_EQ(Trace(), "push f1 #1; leave; finish OK");
}

TEST_F(IslandLoopTest, LeavesIfPushesFail) {
  Open(0);
  Join();
  Trace(7);
  loop_.OnStopRequested();
  for (int i = 0; i < IslandLoop::kStopFailuresMax; ++i) {
    ASSERT_EQ(NextLine(), "push f0 #1");
    Fail(absl::StatusCode::kUnavailable);
    loop_.OnWaited();
  }
  EXPECT_EQ(Trace(), "leave; finish OK");
}

TEST_F(IslandLoopTest, FinishesAtTheSecondStop) {
  Open(0);
  Join();
  Trace(5);
  loop_.OnStopRequested();
  loop_.OnStopRequested();
  EXPECT_EQ(NextLine(), "finish CANCELLED");
}

TEST_F(IslandLoopTest, ALeaveTellsNothingOfThisMachine) {
  Open(0);
  Join();
  EXPECT_EQ(Trace(4), "load_save; pull f0 v0; report_ready 0; begin_round");
  loop_.OnDone(loop_.Next(), absl::DataLossError(
                                 "/home/x/data/a has 17 bytes, SHA-256 1234"));
  EXPECT_EQ(loop_.Next().kind, ActionKind::kLeave);
  EXPECT_EQ(loop_.Next().reason, "its data is not the run's");
  loop_.OnDone(loop_.Next(), absl::OkStatus());
  // The island's own log has it.
  EXPECT_EQ(loop_.Next().kind, ActionKind::kFinish);
  EXPECT_TRUE(absl::StrContains(loop_.Next().status.message(), "17 bytes"));
}

TEST_F(IslandLoopTest, LeavesWhenTrainingFails) {
  Open(0);
  Join();
  Trace(4);
  ASSERT_EQ(NextLine(), "train 0 @1:0");
  Fail(absl::StatusCode::kInternal);
  EXPECT_EQ(Trace(), "leave; finish INTERNAL");
}

TEST_F(IslandLoopTest, WaitsForDataAndThenTakesTheSameStep) {
  AwaitData();
  const Action wait = loop_.Next();
  EXPECT_EQ(Line(wait), "wait after 1");
  EXPECT_EQ(wait.reason, "waits for data: file a, 3 %");
  loop_.OnWaited();
  EXPECT_EQ(NextLine(), "train 0 @1:0");
  loop_.OnDone(loop_.Next(), DataAwaited("file a, 9 %"));
  EXPECT_EQ(loop_.Next().reason, "waits for data: file a, 9 %");
  loop_.OnDataCame();
  EXPECT_EQ(Trace(2), "train 0 @1:0; train 1 @1:4");
}

TEST_F(IslandLoopTest, ACommitWithoutItEndsAWaitForData) {
  AwaitData();
  Commit(0);
  Publish();
  EXPECT_EQ(Trace(), "pull f0 v1; wait");
}

TEST_F(IslandLoopTest, APauseOrAStopEndsAWaitForData) {
  AwaitData();
  plan_.set_run_state(v1::RUN_STATE_PAUSED);
  Publish();
  EXPECT_EQ(loop_.Next().reason, "the run is paused");
  plan_.set_run_state(v1::RUN_STATE_ACTIVE);
  Publish();
  EXPECT_EQ(NextLine(), "train 0 @1:0");
  loop_.OnDone(loop_.Next(), DataAwaited("file a, 3 %"));
  loop_.OnStopRequested();
  EXPECT_EQ(Trace(), "leave; finish OK");
}

TEST_F(IslandLoopTest, AFinishWaitsForData) {
  AwaitData();
  loop_.OnFinish();
  EXPECT_EQ(NextLine(), "wait after 1");
  loop_.OnDataCame();
  EXPECT_EQ(Trace(2), "train 0 @1:0; train 1 @1:4");
}

TEST_F(IslandLoopTest, AFinishGivesUpStepsWhoseDataDoesNotCome) {
  AwaitData();
  loop_.OnFinish();
  for (int i = 1; i < IslandLoop::kFinishTriesMax; ++i) {
    ASSERT_EQ(NextLine(), absl::StrCat("wait after ", i));
    loop_.OnWaited();
    ASSERT_EQ(NextLine(), "train 0 @1:0") << i;
    loop_.OnDone(loop_.Next(), DataAwaited("file a, 3 %"));
  }
  EXPECT_EQ(Trace(), "leave; finish OK");
}

TEST_F(IslandLoopTest, AFinishGivesUpTheStepsOfAPausedRun) {
  AwaitData();
  loop_.OnDataCame();
  plan_.set_run_state(v1::RUN_STATE_PAUSED);
  Publish();
  EXPECT_EQ(NextLine(), "wait");
  loop_.OnFinish();
  EXPECT_EQ(Trace(), "leave; finish OK");
}

TEST_F(IslandLoopTest, AnEvaluationThatAwaitsDataIsDueUntilItsVersionIsOld) {
  join_.mutable_run()
      ->mutable_spec()
      ->mutable_evaluation()
      ->set_every_round_count(1);
  PushFirst();
  Decide(0, 1, v1::OUTCOME_MERGED);
  Commit(0);
  Publish();
  EXPECT_EQ(Trace(1), "pull f0 v1");
  EXPECT_EQ(NextLine(), "evaluate v1");
  loop_.OnDone(loop_.Next(), DataAwaited("file h, 0 %"));
  EXPECT_EQ(NextLine(), "wait after 1");
  loop_.OnDataCame();
  EXPECT_EQ(NextLine(), "evaluate v1");
  loop_.OnDone(loop_.Next(), DataAwaited("file h, 0 %"));
  Commit(0);
  Publish();
  EXPECT_EQ(NextLine(), "pull f0 v2");
}

TEST_F(IslandLoopTest, TriesASaveAgainThatCouldNotBeWritten) {
  Open(0);
  Join();
  Trace(6);
  ASSERT_EQ(NextLine(), "contribute #1 x2 [0,8) f0 v0");
  Fail(absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(NextLine(), "wait after 1");
  loop_.OnWaited();
  EXPECT_EQ(NextLine(), "contribute #1 x2 [0,8) f0 v0");
}

TEST_F(IslandLoopTest, OnHoldItPushesAndPullsButTakesNoStep) {
  Open(0);
  Join();
  EXPECT_EQ(Trace(5),
            "load_save; pull f0 v0; report_ready 0; begin_round; train 0 @1:0");
  loop_.OnHold("someone uses this machine");
  EXPECT_EQ(NextLine(), "wait");
  EXPECT_EQ(loop_.Next().reason,
            "paused by its user: someone uses this machine");
  EXPECT_EQ(loop_.Next().hindrance, "paused by its user");
  loop_.OnHold("");
  EXPECT_EQ(Trace(2), "train 1 @1:4; contribute #1 x2 [0,8) f0 v0");
  loop_.OnHold("pause");
  EXPECT_EQ(Trace(), "push f0 #1; wait");
  Decide(0, 1, v1::OUTCOME_MERGED);
  Commit(0);
  Open(0);
  Publish();
  EXPECT_EQ(Trace(), "pull f0 v1; wait") << "begins no round";
  loop_.OnHold("");
  EXPECT_EQ(Trace(2), "begin_round; train 2 @1:8");
}

TEST_F(IslandLoopTest, OnHoldItEvaluatesNothing) {
  Spec().mutable_evaluation()->set_every_round_count(1);
  PushFirst();
  loop_.OnHold("pause");
  Commit(0);
  Open(0);
  Publish();
  EXPECT_EQ(Trace(), "pull f0 v1; wait");
  loop_.OnHold("");
  EXPECT_EQ(Trace(2), "evaluate v1; begin_round");
}

TEST_F(IslandLoopTest, FinishesAfterTheOutcomeOfTheRoundInProgress) {
  Open(0);
  Join();
  EXPECT_EQ(Trace(5),
            "load_save; pull f0 v0; report_ready 0; begin_round; train 0 @1:0");
  loop_.OnFinish();
  EXPECT_EQ(Trace(),
            "train 1 @1:4; contribute #1 x2 [0,8) f0 v0; push f0 #1; wait");
  Decide(0, 1, v1::OUTCOME_MERGED);
  Commit(0);
  Open(0);
  Publish();
  EXPECT_EQ(Trace(), "leave; finish OK");
}

TEST_F(IslandLoopTest, AFinishBeforeTheJoinEndsIt) {
  loop_.OnFinish();
  EXPECT_EQ(Trace(), "finish OK");
}

TEST_F(IslandLoopTest, AFinishOnHoldGivesTheRoundInProgressUp) {
  Open(0);
  Join();
  Trace(5);
  loop_.OnHold("pause");
  loop_.OnFinish();
  EXPECT_EQ(Trace(), "leave; finish OK");
}

}  // namespace
}  // namespace atl::worker
