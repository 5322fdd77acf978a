// Traces of the loop in streaming runs, lane by lane.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "worker/core/island_loop.h"
#include "worker/core/testing/shaped_plan.h"

namespace atl::worker {
namespace {

constexpr int32_t kFragments = 2;

// Two fragments, H = 4, staggered: pushes after 2 and 4 steps, 6 and 8, ...;
// answers are applied one step later.
class StreamingLoopTest : public IslandLoopFixture {
 protected:
  StreamingLoopTest() {
    v1::ScheduleSpec& schedule = Schedule();
    schedule.set_timing(v1::TIMING_STRICT);
    schedule.set_inner_step_count(4);
    schedule.set_round_count(3);
    schedule.set_fragment_schedule(v1::FRAGMENT_SCHEDULE_STAGGERED);
    schedule.set_overlap_step_count(1);
    for (int32_t f = 0; f < kFragments; ++f) {
      AddFragment();
      Open(f);
    }
  }

  void Open(int32_t f, const std::vector<int32_t>& slots = {0, kSlot}) {
    OpenInStream(kFragments, f, slots);
  }
  // `seq` is merged; the next round of `f` opens unless the run ends.
  void Commit(int32_t f, int64_t seq) {
    if (seq > 0) Decide(f, seq, v1::OUTCOME_MERGED);
    Close(f);
    Advance(f);
    if (Version(f) < Schedule().round_count()) Open(f);
  }
  static std::string Line(const Action& action) {
    std::string line = ActionName(action.kind);
    switch (action.kind) {
      case ActionKind::kWait:
        return absl::StrCat(line, "(", action.reason, ")");
      case ActionKind::kPull:
        return absl::StrCat(line, " f", action.fragment, " v", action.version);
      case ActionKind::kApply:
        return absl::StrCat(line, " f", action.fragment, " v", action.version,
                            action.adopt ? " adopt" : "");
      case ActionKind::kTrain:
        return absl::StrCat(line, " ", action.step, " @", action.data_position);
      case ActionKind::kContribute:
        absl::StrAppend(&line, " #", action.seq, " x", action.step_count, " [",
                        action.data_begin, ",", action.data_position, ")");
        for (const AnchoredFragment& at : action.contributions) {
          absl::StrAppend(&line, " f", at.fragment, " v", at.anchor_version);
        }
        return line;
      case ActionKind::kPush:
        return absl::StrCat(line, " f", action.fragment, " #", action.seq);
      default:
        return line;
    }
  }
  std::string Trace(Lane lane = Lane::kTraining) {
    std::vector<std::string> lines;
    for (int i = 0; i < 100; ++i) {
      const Action action = loop_.Next(lane);
      lines.push_back(Line(action));
      if (action.kind == ActionKind::kWait ||
          action.kind == ActionKind::kFinish) {
        break;
      }
      if (action.kind == ActionKind::kLoadSave) {
        loop_.OnSaveLoaded(save_);
        continue;
      }
      if (action.kind == ActionKind::kContribute) {
        newest_save_ = MakeSave(action);
        whole_saves_.push_back(action.whole_save);
      }
      loop_.OnStarted(lane, action);
      loop_.OnDone(action, absl::OkStatus());
      if (saves_at_once_) SaveBeside();
    }
    return absl::StrJoin(lines, "; ");
  }
  void SaveBeside() {
    const Action save = loop_.Next(Lane::kSave);
    if (save.kind != ActionKind::kSave) return;
    EXPECT_TRUE(loop_.saving());
    loop_.OnStarted(Lane::kSave, save);
    loop_.OnDone(save, absl::OkStatus());
    EXPECT_FALSE(loop_.saving());
  }
  std::string Unpushed() {
    std::vector<std::string> lines;
    for (const v1::UnpushedWork& work : loop_.TakeUnpushed()) {
      lines.push_back(absl::StrCat(
          "f", work.fragment(), " v", work.version(), " x",
          work.step_count() - work.restored_step_count(),
          work.seq() > 0 ? absl::StrCat(" #", work.seq()) : ""));
    }
    return absl::StrJoin(lines, "; ");
  }
  std::string Pushes() { return Trace(Lane::kPush); }
  std::string Pulls() { return Trace(Lane::kPull); }
  std::string NextLine(Lane lane = Lane::kTraining) {
    return Line(loop_.Next(lane));
  }
  SaveSummary MakeSave(const Action& action) {
    SaveSummary save = loop_.StreamSave(action);
    save.run_id = kRun;
    save.run_epoch = 1;
    save.slot = kSlot;
    save.seq = action.seq;
    save.contributions = action.contributions;
    save.data_shard = action.data_shard;
    save.data_position = action.data_position;
    return save;
  }
  void NewLife(std::optional<SaveSummary> save) {
    NewLoop();
    save_ = std::move(save);
    join_.set_island_epoch(join_.island_epoch() + 1);
    plan_.set_island_epoch(join_.island_epoch());
    Join();
  }
  void PushFirst() {
    Join();
    EXPECT_EQ(Trace(), "load_save; wait(pulling the newest cut)");
    EXPECT_EQ(Pulls(), "pull f0 v0; pull f1 v0; "
                       "wait(every anchor is the newest)");
    EXPECT_EQ(Trace(),
              "report_ready; begin_round; train 0 @0; train 1 @4; "
              "contribute #1 x2 [0,8) f0 v0; train 2 @8; "
              "wait(waiting for the commit of fragment 0)");
    EXPECT_EQ(Pushes(), "push f0 #1; wait(there is nothing to push)");
  }

  std::optional<SaveSummary> save_, newest_save_;
  std::vector<bool> whole_saves_;  // Of each contribution.
  bool saves_at_once_ = true;
};

TEST_F(StreamingLoopTest, TrainsOnWhileAContributionIsEncodedAndSaved) {
  saves_at_once_ = false;
  Schedule().set_overlap_step_count(3);
  Join();
  Trace();
  Pulls();
  // The next contribution waits for the one that is being saved.
  EXPECT_EQ(Trace(),
            "report_ready; begin_round; train 0 @0; train 1 @4; "
            "contribute #1 x2 [0,8) f0 v0; train 2 @8; train 3 @12; "
            "wait(the previous contribution is being saved)");
  // Nothing is pushed before it is saved.
  EXPECT_EQ(Pushes(), "wait(there is nothing to push)");
  const Action save = loop_.Next(Lane::kSave);
  ASSERT_EQ(Line(save), "save");
  EXPECT_EQ(save.seq, 1);
  loop_.OnStarted(Lane::kSave, save);
  EXPECT_EQ(Trace(), "wait(the previous contribution is being saved)");
  loop_.OnDone(save, absl::ResourceExhaustedError("the disk is full"));
  EXPECT_TRUE(loop_.saving());
  EXPECT_EQ(NextLine(Lane::kSave), "wait(a save failed)");
  EXPECT_EQ(Pushes(), "wait(there is nothing to push)");
  loop_.OnWaited(Lane::kSave);
  SaveBeside();
  EXPECT_EQ(NextLine(Lane::kSave), "wait(there is nothing to save)");
  EXPECT_EQ(Pushes(), "push f0 #1; wait(there is nothing to push)");
  EXPECT_EQ(Trace(),
            "contribute #2 x4 [0,16) f1 v0; train 4 @16; "
            "wait(waiting for the commit of fragment 0)");
}

TEST_F(StreamingLoopTest, WhatCannotBeEncodedEndsTheIsland) {
  saves_at_once_ = false;
  Join();
  Trace();
  Pulls();
  Trace();
  const Action save = loop_.Next(Lane::kSave);
  loop_.OnStarted(Lane::kSave, save);
  loop_.OnDone(save, absl::InvalidArgumentError("not finite"));
  EXPECT_EQ(Trace(), "leave; finish");
}

TEST_F(StreamingLoopTest, WhoLeavesSavesAndPushesWhatIsTaken) {
  saves_at_once_ = false;
  Join();
  Trace();
  Pulls();
  Trace();
  loop_.OnStopRequested();
  EXPECT_EQ(NextLine(), "wait(pushing saved contributions before it leaves)");
  SaveBeside();
  EXPECT_EQ(NextLine(), "wait(pushing saved contributions before it leaves)");
  EXPECT_EQ(Pushes(), "push f0 #1; wait(there is nothing to push)");
  EXPECT_EQ(Trace(), "leave; finish");
}

TEST_F(StreamingLoopTest, WithoutOverlapNothingIsSavedBeside) {
  saves_at_once_ = false;
  Schedule().set_overlap_step_count(0);
  Join();
  Trace();
  Pulls();
  EXPECT_EQ(Trace(),
            "report_ready; begin_round; train 0 @0; train 1 @4; "
            "contribute #1 x2 [0,8) f0 v0; "
            "wait(waiting for the commit of fragment 0)");
  EXPECT_EQ(NextLine(Lane::kSave), "wait(there is nothing to save)");
  EXPECT_EQ(Pushes(), "push f0 #1; wait(there is nothing to push)");
}

TEST_F(StreamingLoopTest, TrainsOnToTheStepAtWhichTheAnswerIsDue) {
  PushFirst();
  Commit(0, 1);
  Publish();
  EXPECT_EQ(NextLine(), "wait(pulling fragment 0)");
  EXPECT_EQ(Pulls(), "pull f0 v1; wait(every anchor is the newest)");
  // Fragment 1 has its own schedule: no round waits for another.
  EXPECT_EQ(Trace(),
            "apply f0 v1; train 3 @12; contribute #2 x4 [0,16) f1 v0; "
            "train 4 @16; wait(waiting for the commit of fragment 1)");
  Commit(1, 2);
  Publish();
  Pulls();
  EXPECT_EQ(Trace(),
            "apply f1 v1; train 5 @20; contribute #3 x4 [8,24) f0 v1; "
            "train 6 @24; wait(waiting for the commit of fragment 0)");
}

TEST_F(StreamingLoopTest, AppliesNoSoonerThanTheStepEvenIfTheAnswerIsThere) {
  Schedule().set_overlap_step_count(3);
  Join();
  Trace();
  Pulls();
  EXPECT_EQ(Trace(),
            "report_ready; begin_round; train 0 @0; train 1 @4; "
            "contribute #1 x2 [0,8) f0 v0; train 2 @8; train 3 @12; "
            "contribute #2 x4 [0,16) f1 v0; train 4 @16; "
            "wait(waiting for the commit of fragment 0)");
  Pushes();
  // Both are in flight; the answers come in the other order.
  Commit(1, 2);
  Commit(0, 1);
  Publish();
  // The fragment that is due first is pulled first.
  EXPECT_EQ(Pulls(), "pull f0 v1; pull f1 v1; "
                     "wait(every anchor is the newest)");
  EXPECT_EQ(Trace(),
            "apply f0 v1; train 5 @20; contribute #3 x4 [8,24) f0 v1; "
            "train 6 @24; apply f1 v1; train 7 @28; "
            "contribute #4 x4 [16,32) f1 v1; train 8 @32; "
            "wait(waiting for the commit of fragment 0)");
}

TEST_F(StreamingLoopTest, TogetherAllFragmentsAreOneContribution) {
  Schedule().set_fragment_schedule(v1::FRAGMENT_SCHEDULE_TOGETHER);
  plan_.clear_open_rounds();
  Open(0);
  Open(1);
  Join();
  Trace();
  Pulls();
  EXPECT_EQ(Trace(),
            "report_ready; begin_round; train 0 @0; train 1 @4; train 2 @8; "
            "train 3 @12; contribute #1 x4 [0,16) f0 v0 f1 v0; train 4 @16; "
            "wait(waiting for the commit of fragment 0)");
  EXPECT_EQ(Pushes(),
            "push f0 #1; push f1 #1; wait(there is nothing to push)");
}

TEST_F(StreamingLoopTest, TrainsNoStepThatNothingIsMergedOf) {
  Schedule().set_round_count(1);
  PushFirst();
  Commit(0, 1);
  Publish();
  Pulls();
  EXPECT_EQ(Trace(),
            "apply f0 v1; train 3 @12; contribute #2 x4 [0,16) f1 v0; "
            "wait(no round expects this island yet)");
  Commit(1, 2);
  plan_.set_run_state(v1::RUN_STATE_COMPLETED);
  Publish();
  EXPECT_EQ(Trace(), "finish");
}

TEST_F(StreamingLoopTest, ShowsTheRunsParametersBeforeItFinishes) {
  loop_.set_shows_end(true);
  Schedule().set_round_count(1);
  PushFirst();
  Commit(0, 1);
  Publish();
  Pulls();
  Trace();
  Commit(1, 2);
  plan_.set_run_state(v1::RUN_STATE_COMPLETED);
  Publish();
  EXPECT_EQ(Trace(), "wait(pulling the run's parameters)");
  EXPECT_EQ(Pulls(), "pull f1 v1; wait(every anchor is the newest)");
  const Action show = loop_.Next();
  EXPECT_TRUE(show.only_show) << show.reason;
  EXPECT_EQ(Trace(), "evaluate; finish");
}

TEST_F(StreamingLoopTest, FinishesIfTheRunsParametersCannotBePulled) {
  loop_.set_shows_end(true);
  Schedule().set_round_count(1);
  PushFirst();
  Commit(0, 1);
  Publish();
  Pulls();
  Trace();
  Commit(1, 2);
  plan_.set_run_state(v1::RUN_STATE_COMPLETED);
  Publish();
  for (int i = 0; i < IslandLoop::kShowFailuresMax; ++i) {
    EXPECT_EQ(NextLine(), "wait(pulling the run's parameters)");
    const Action pull = loop_.Next(Lane::kPull);
    ASSERT_EQ(Line(pull), "pull f1 v1");
    loop_.OnStarted(Lane::kPull, pull);
    loop_.OnDone(pull, absl::UnavailableError("test"));
    loop_.OnWaited(Lane::kPull);
  }
  EXPECT_EQ(Trace(), "finish");
}

TEST_F(StreamingLoopTest, ARestartRepeatsTheStepsSinceTheSave) {
  PushFirst();
  const SaveSummary save = *newest_save_;
  // Killed before the commit: the same bytes are pushed again.
  NewLife(save);
  EXPECT_EQ(Trace(),
            "load_save; report_ready; restore_save; train 2 @8; "
            "wait(waiting for the commit of fragment 0)");
  EXPECT_EQ(Pushes(), "push f0 #1; wait(there is nothing to push)");
  // Killed after the commit.
  Commit(0, 1);
  NewLife(save);
  EXPECT_EQ(Pushes(), "wait(there is nothing to do)");
  EXPECT_EQ(Trace(),
            "load_save; report_ready; restore_save; train 2 @8; "
            "wait(pulling fragment 0)");
  EXPECT_EQ(Pushes(), "wait(there is nothing to push)");
  // Fragment 1's anchor is pulled too: the local checkpoint names it.
  EXPECT_EQ(Pulls(), "pull f0 v1; pull f1 v0; "
                     "wait(every anchor is the newest)");
  join_.set_next_seq(0);
  EXPECT_EQ(Trace(),
            "apply f0 v1; train 3 @12; contribute #2 x4 [0,16) f1 v0; "
            "train 4 @16; wait(waiting for the commit of fragment 1)");
}

TEST_F(StreamingLoopTest, ASaveThatNamesOtherVersionsIsNotUsed) {
  PushFirst();
  const SaveSummary save = *newest_save_;
  Commit(1, 0);
  NewLife(save);
  EXPECT_EQ(Trace(), "load_save; wait(pulling the newest cut)");
  Pulls();
  EXPECT_EQ(NextLine(), "reset_optimizer");
  // The contribution was decided against.
  plan_.mutable_cut(1)->set_version(0);
  Close(1);
  Open(1);
  Decide(0, 1, v1::OUTCOME_DROPPED);
  NewLife(save);
  EXPECT_EQ(Trace(), "load_save; wait(pulling the newest cut)");
  // It was merged, and its fragment went on without this island.
  plan_.clear_outcomes();
  Commit(0, 1);
  Commit(0, 0);
  NewLife(save);
  EXPECT_EQ(Trace(), "load_save; wait(pulling the newest cut)");
}

TEST_F(StreamingLoopTest, AJoinerIsExpectedFromEachFragmentsNextRound) {
  plan_.mutable_cut(0)->set_version(1);
  plan_.set_commit_seq(1);
  plan_.clear_open_rounds();
  Open(0, {0});
  Open(1, {0});
  Join();
  Trace();
  Pulls();
  EXPECT_EQ(Trace(),
            "reset_optimizer; report_ready; "
            "wait(no round expects this island yet)");
  Commit(1, 0);
  Publish();
  Pulls();
  // The clock is that of the first round that expects it: 4.
  EXPECT_EQ(Trace(),
            "begin_round; train 4 @0; train 5 @4; train 6 @8; train 7 @12; "
            "contribute #1 x4 [0,16) f1 v1; train 8 @16; "
            "wait(waiting for the commit of fragment 1)");
  // Fragment 0 went on without it, so its values are dropped.
  Commit(0, 0);
  Publish();
  Pulls();
  EXPECT_EQ(NextLine(), "apply f0 v2 adopt");
  EXPECT_EQ(Unpushed(), "");
  Trace();
  EXPECT_EQ(Unpushed(), "f0 v1 x5");
}

// Each step of each fragment is in a contribution or told: here 3 and 3.
TEST_F(StreamingLoopTest, TellsTheStepsThatItLeavesBehind) {
  PushFirst();
  loop_.OnLeaving();
  EXPECT_EQ(Unpushed(), "f0 v1 x1; f1 v0 x3");
}

TEST_F(StreamingLoopTest, ARestartTakesBackTheStepsThatALeaveTold) {
  PushFirst();
  const SaveSummary save = *newest_save_;
  loop_.OnLeaving();
  EXPECT_EQ(Unpushed(), "f0 v1 x1; f1 v0 x3");
  NewLife(save);
  Trace();
  EXPECT_EQ(Unpushed(), "f1 v0 x-2");
  loop_.OnLeaving();
  // It has not pushed #1 again, and does not know of the push before.
  EXPECT_EQ(Unpushed(), "f0 v0 x2 #1; f0 v1 x1; f1 v0 x3");
  // Steps that are not restored stay told.
  Commit(1, 0);
  NewLife(save);
  Trace();
  EXPECT_EQ(Unpushed(), "f0 v0 x2 #1");
}

TEST_F(StreamingLoopTest, ARestartTakesBackTheStepsThatFollowedAPush) {
  Schedule().set_overlap_step_count(3);
  Join();
  Trace();
  Pulls();
  Trace();
  ASSERT_EQ(newest_save_->seq, 2);
  NewLife(newest_save_);
  Trace();
  EXPECT_EQ(Unpushed(), "f0 v1 x-2");
}

TEST_F(StreamingLoopTest, WhatIsInFlightIsUnpushedWorkUntilShardsHaveIt) {
  Join();
  Trace();
  Pulls();
  Trace();
  loop_.OnLeaving();
  EXPECT_EQ(Unpushed(), "f0 v0 x2 #1; f0 v1 x1; f1 v0 x3");
}

TEST_F(StreamingLoopTest, ARestartTellsAContributionWhoseRoundWentOn) {
  Join();
  Trace();
  Pulls();
  Trace();
  NewLife(newest_save_);
  Trace();
  EXPECT_EQ(Unpushed(), "f1 v0 x-2");
  Commit(0, 0);
  Publish();
  Pulls();
  Trace();
  EXPECT_EQ(Unpushed(), "f0 v0 x2 #1");
}

// Its round went on while no process ran.
TEST_F(StreamingLoopTest, ASaveThatDoesNotFitIsUnpushedWork) {
  Join();
  Trace();
  Pulls();
  Trace();
  Commit(0, 0);
  NewLife(newest_save_);
  Trace();
  EXPECT_EQ(Unpushed(), "f0 v0 x2 #1");
  Decide(0, 1, v1::OUTCOME_LATE);
  NewLife(newest_save_);
  Trace();
  EXPECT_EQ(Unpushed(), "");
}

TEST_F(StreamingLoopTest, APushThatAPlanStopsIsUnpushedWorkAndNoFailure) {
  Join();
  Trace();
  Pulls();
  Trace();
  const Action push = loop_.Next(Lane::kPush);
  ASSERT_EQ(Line(push), "push f0 #1");
  loop_.OnStarted(Lane::kPush, push);
  Commit(0, 0);
  Publish();
  loop_.OnDone(push, absl::CancelledError("test"));
  Pulls();
  EXPECT_EQ(Trace(),
            "apply f0 v1; train 3 @12; contribute #2 x4 [0,16) f1 v0; "
            "train 4 @16; wait(waiting for the commit of fragment 1)");
  EXPECT_EQ(Unpushed(), "f0 v0 x2 #1");
  EXPECT_EQ(Pushes(), "push f1 #2; wait(there is nothing to push)");
}

TEST_F(StreamingLoopTest, TellsWhatARestoreTakes) {
  PushFirst();
  plan_.set_run_epoch(2);
  plan_.set_commit_seq(9);
  Publish();
  EXPECT_EQ(Unpushed(), "f0 v0 x2 #1; f0 v1 x1; f1 v0 x3");
}

TEST_F(StreamingLoopTest, ADroppedContributionStartsAgainFromTheAnchor) {
  PushFirst();
  Decide(0, 1, v1::OUTCOME_DROPPED);
  Publish();
  EXPECT_EQ(Trace(),
            "reset_optimizer; apply f0 v0 adopt; train 3 @12; "
            "contribute #2 x4 [0,16) f1 v0; train 4 @16; "
            "contribute #3 x2 [12,20) f0 v0; "
            "wait(waiting for the commit of fragment 1)");
  EXPECT_EQ(Unpushed(), "f0 v0 x1");  // The step after the push.
}

TEST_F(StreamingLoopTest, TheSaveAfterAResetIsWhole) {
  PushFirst();
  Decide(0, 1, v1::OUTCOME_DROPPED);
  Publish();
  Trace();
  // By default every second one is: the fragments of a round.
  EXPECT_EQ(whole_saves_, (std::vector<bool>{true, true, false}));
}

TEST_F(StreamingLoopTest, ARejectionDuringAContributionMakesTheNextSaveWhole) {
  Schedule().set_overlap_step_count(3);
  Spec().mutable_inner()->set_save_every_syncs(100);
  Join();
  Trace();
  Pulls();
  Action action = loop_.Next();
  while (action.kind != ActionKind::kContribute || action.seq != 2) {
    ASSERT_NE(action.kind, ActionKind::kWait) << action.reason;
    loop_.OnStarted(Lane::kTraining, action);
    loop_.OnDone(action, absl::OkStatus());
    SaveBeside();
    action = loop_.Next();
  }
  EXPECT_FALSE(action.whole_save);
  loop_.OnStarted(Lane::kTraining, action);
  Decide(0, 1, v1::OUTCOME_DROPPED);
  Publish();
  loop_.OnDone(action, absl::OkStatus());
  SaveBeside();
  EXPECT_EQ(NextLine(), "reset_optimizer");
  Trace();
  ASSERT_FALSE(whole_saves_.empty());
  EXPECT_TRUE(whole_saves_.front());
}

// Records that follow would lack it.
TEST_F(StreamingLoopTest, AContributionThatIsNeverSavedMakesTheNextSaveWhole) {
  saves_at_once_ = false;
  Schedule().set_timing(v1::TIMING_ELASTIC);
  Schedule().set_overlap_step_count(3);
  Spec().mutable_inner()->set_save_every_syncs(100);
  Join();
  Trace();
  Pulls();
  Trace();
  ASSERT_EQ(whole_saves_, std::vector<bool>{true});
  const Action save = loop_.Next(Lane::kSave);
  loop_.OnStarted(Lane::kSave, save);
  loop_.OnDone(save, absl::ResourceExhaustedError("the disk is full"));
  // Its round goes on without it.
  Commit(0, 0);
  Publish();
  Pulls();
  saves_at_once_ = true;
  Trace();
  ASSERT_GE(whole_saves_.size(), 2);
  EXPECT_TRUE(whole_saves_[1]);
}

TEST_F(StreamingLoopTest, ARestoreIsRepeatedUntilItIsFinished) {
  PushFirst();
  NewLife(newest_save_);
  EXPECT_EQ(NextLine(), "load_save");
  loop_.OnSaveLoaded(save_);
  const auto next_restore = [&] {
    Action action = loop_.Next();
    while (action.kind != ActionKind::kRestoreSave &&
           action.kind != ActionKind::kWait) {
      loop_.OnDone(action, absl::OkStatus());
      action = loop_.Next();
    }
    EXPECT_EQ(Line(action), "restore_save");
    return action;
  };
  Action restore = next_restore();
  restore.unfinished = true;
  loop_.OnDone(restore, absl::OkStatus());
  restore = next_restore();
  // An error of a step ends the island, as in training; the files stay.
  restore.repeats_steps = true;
  loop_.OnDone(restore, absl::InternalError("the loss is not finite"));
  EXPECT_EQ(Trace(), "leave; finish");
}

TEST_F(StreamingLoopTest, AnElasticIslandAppliesWhenTheAnswerIsThere) {
  Schedule().set_timing(v1::TIMING_ELASTIC);
  Schedule().set_max_ahead_steps(1);
  Join();
  Trace();
  Pulls();
  // Up to overlap + max_ahead steps without an answer.
  EXPECT_EQ(Trace(),
            "report_ready; begin_round; train 0 @0; train 1 @4; "
            "contribute #1 x2 [0,8) f0 v0; train 2 @8; train 3 @12; "
            "contribute #2 x4 [0,16) f1 v0; "
            "wait(waiting for the commit of fragment 0)");
  // The contribution came too late; the answer is applied all the same.
  Decide(0, 1, v1::OUTCOME_LATE);
  Commit(0, 0);
  Publish();
  Pulls();
  EXPECT_EQ(Trace(),
            "apply f0 v1; train 4 @16; train 5 @20; "
            "contribute #3 x4 [8,24) f0 v1; "
            "wait(waiting for the commit of fragment 1)");
}

TEST_F(StreamingLoopTest, NothingIsPulledIntoAnAnchorThatIsBeingRead) {
  auto& evaluation = *join_.mutable_run()->mutable_spec()->mutable_evaluation();
  evaluation.set_every_round_count(1);
  PushFirst();
  Commit(0, 1);
  Publish();
  const Action pull = loop_.Next(Lane::kPull);
  EXPECT_EQ(Line(pull), "pull f0 v1");
  loop_.OnStarted(Lane::kPull, pull);
  Commit(1, 0);
  Publish();
  // Version 1 is due for evaluation, but an anchor is being written.
  EXPECT_NE(NextLine(), "evaluate");
  loop_.OnDone(pull, absl::OkStatus());
  Pulls();
  const Action evaluate = loop_.Next();
  ASSERT_EQ(Line(evaluate), "evaluate");
  loop_.OnStarted(Lane::kTraining, evaluate);
  Commit(0, 0);
  Publish();
  EXPECT_EQ(NextLine(Lane::kPull), "wait(the anchor is being read)");
  loop_.OnDone(evaluate, absl::OkStatus());
  EXPECT_EQ(NextLine(Lane::kPull), "pull f0 v2");
}

// A lane handles news while another lane works.
TEST_F(StreamingLoopTest, ACommitDuringTheBeginDoesNotPassForTheAnchor) {
  Join();
  Trace();
  Pulls();
  const Action ready = loop_.Next();
  loop_.OnDone(ready, absl::OkStatus());
  const Action begin = loop_.Next();
  ASSERT_EQ(Line(begin), "begin_round");
  loop_.OnStarted(Lane::kTraining, begin);
  Commit(0, 0);
  Publish();
  loop_.OnDone(begin, absl::OkStatus());
  Pulls();
  // Local values are those of version 0.
  EXPECT_EQ(NextLine(), "apply f0 v1 adopt");
}

TEST_F(StreamingLoopTest, ACoordinatorThatStartsDuringTheReportIsToldToo) {
  Join();
  Trace();
  Pulls();
  const Action ready = loop_.Next();
  ASSERT_EQ(Line(ready), "report_ready");
  loop_.OnStarted(Lane::kTraining, ready);
  plan_.set_coordinator_epoch(2);
  Publish();
  loop_.OnDone(ready, absl::OkStatus());
  EXPECT_EQ(NextLine(), "report_ready");
}

TEST_F(StreamingLoopTest, WhatWasPulledOfARestoredRunIsNotHeld) {
  Join();
  Trace();
  const Action pull = loop_.Next(Lane::kPull);
  ASSERT_EQ(Line(pull), "pull f0 v0");
  loop_.OnStarted(Lane::kPull, pull);
  plan_.set_run_epoch(2);
  Publish();
  loop_.OnDone(pull, absl::OkStatus());
  EXPECT_EQ(NextLine(Lane::kPull), "pull f0 v0");
}

TEST_F(StreamingLoopTest, AFailedTransferDoesNotStopTraining) {
  Join();
  Trace();
  Pulls();
  for (int i = 0; i < 5; ++i) {
    const Action action = loop_.Next();
    loop_.OnDone(action, absl::OkStatus());
  }
  SaveBeside();
  const Action push = loop_.Next(Lane::kPush);
  ASSERT_EQ(Line(push), "push f0 #1");
  loop_.OnDone(push, absl::UnavailableError("test"));
  EXPECT_EQ(loop_.Next(Lane::kPush).failure_count, 1);
  EXPECT_EQ(NextLine(), "train 2 @8");
  loop_.OnWaited(Lane::kPush);
  EXPECT_EQ(NextLine(Lane::kPush), "push f0 #1");
}

TEST_F(StreamingLoopTest, PushesOnBeforeItLeaves) {
  Join();
  Trace();
  Pulls();
  Trace();
  loop_.OnStopRequested();
  EXPECT_EQ(NextLine(), "wait(pushing saved contributions before it leaves)");
  EXPECT_EQ(Pushes(), "push f0 #1; wait(there is nothing to push)");
  EXPECT_EQ(Trace(), "leave; finish");
}

TEST_F(StreamingLoopTest, ARunInRoundsHasOneLane) {
  Schedule().set_fragment_schedule(v1::FRAGMENT_SCHEDULE_TOGETHER);
  Schedule().set_overlap_step_count(0);
  Join();
  Trace();
  EXPECT_EQ(NextLine(Lane::kPush), "wait(the run has no such lane)");
  EXPECT_EQ(NextLine(Lane::kPull), "wait(the run has no such lane)");
}

// --- Runs with a token budget ------------------------------------------------

// Only the rounds that a test opens are planned.
class TokenBudgetTest : public StreamingLoopTest {
 protected:
  TokenBudgetTest() {
    Schedule().set_round_count(0);
    Schedule().set_token_count(1000);
  }
  // From fragment 0 at version 1 to both there.
  void CommitSecond() {
    Publish();
    Pulls();
    EXPECT_EQ(Trace(),
              "apply f0 v1; train 3 @12; contribute #2 x4 [0,16) f1 v0; "
              "train 4 @16; wait(waiting for the commit of fragment 1)");
    Commit(1, 2);
    Open(1);
    Publish();
    Pulls();
  }
};

TEST_F(TokenBudgetTest, TrainsOnForTheOthersOnceAFragmentIsAtItsEnd) {
  PushFirst();
  Commit(0, 1);
  plan_.add_ended_fragments(0);
  CommitSecond();
  EXPECT_EQ(Trace(),
            "apply f1 v1; train 5 @20; train 6 @24; train 7 @28; "
            "contribute #3 x4 [16,32) f1 v1; train 8 @32; "
            "wait(waiting for the commit of fragment 1)");
  Commit(1, 3);
  plan_.add_ended_fragments(1);
  plan_.set_run_state(v1::RUN_STATE_COMPLETED);
  Publish();
  EXPECT_EQ(Trace(), "finish");
}

TEST_F(TokenBudgetTest, EvaluatesTheLastCutUnderItsNewestVersion) {
  Spec().mutable_evaluation()->set_every_round_count(10);
  PushFirst();
  plan_.clear_open_rounds();
  plan_.mutable_cut(0)->set_version(1);
  plan_.mutable_cut(1)->set_version(3);
  plan_.add_ended_fragments(0);
  plan_.add_ended_fragments(1);
  plan_.set_run_state(v1::RUN_STATE_COMPLETED);
  Publish();
  Pulls();
  const Action evaluate = loop_.Next();
  ASSERT_EQ(Line(evaluate), "evaluate") << "3 mod 2 is 1";
  EXPECT_EQ(evaluate.version, 3);
  loop_.OnDone(evaluate, absl::OkStatus());
  EXPECT_EQ(Trace(), "finish");
}

class TokenClockTest : public TokenBudgetTest,
                       public testing::WithParamInterface<int64_t> {};

TEST_P(TokenClockTest, TheLearningRateFollowsTheTokensFromAPushOn) {
  PushFirst();
  Commit(0, 1);
  Open(0);
  v1::OpenRound& open =
      *plan_.mutable_open_rounds(plan_.open_rounds_size() - 1);
  for (v1::SlotPlan& slot : *open.mutable_slots()) {
    slot.set_start_step(GetParam());
  }
  CommitSecond();
  // Round 1 of fragment 0 began at step 2.
  EXPECT_EQ(Trace(),
            absl::StrCat("apply f1 v1; train 5 @20; "
                         "contribute #3 x4 [8,24) f0 v1; train ",
                         6 + GetParam() - 2,
                         " @24; wait(waiting for the commit of fragment 0)"));
}

INSTANTIATE_TEST_SUITE_P(MoreTokensOrFewer, TokenClockTest,
                         testing::Values(10, 1));

TEST_F(StreamingLoopTest, OnHoldItTrainsNothingButPushesAndPulls) {
  Join();
  Trace();
  loop_.OnHold("pause");
  EXPECT_EQ(Pulls(), "pull f0 v0; pull f1 v0; "
                     "wait(every anchor is the newest)");
  EXPECT_EQ(Trace(), "report_ready; wait(paused by its user: pause)");
  loop_.OnHold("");
  EXPECT_EQ(NextLine(), "begin_round");
  Trace();
  loop_.OnHold("pause");
  EXPECT_EQ(Pushes(), "push f0 #1; wait(there is nothing to push)");
  Commit(0, 1);
  Publish();
  EXPECT_EQ(Pulls(), "pull f0 v1; wait(every anchor is the newest)");
  EXPECT_EQ(Trace(), "apply f0 v1; wait(paused by its user: pause)");
  loop_.OnHold("");
  EXPECT_EQ(NextLine(), "train 3 @12");
}

TEST_F(StreamingLoopTest, FinishesAfterItsNextPushOnceNothingIsInFlight) {
  PushFirst();
  loop_.OnFinish();
  Commit(0, 1);
  Publish();
  Pulls();
  EXPECT_EQ(Trace(),
            "apply f0 v1; train 3 @12; contribute #2 x4 [0,16) f1 v0; "
            "wait(finishing: waiting for the outcome of its contributions)");
  EXPECT_EQ(Pushes(), "push f1 #2; wait(there is nothing to push)");
  Commit(1, 2);
  Publish();
  EXPECT_EQ(Trace(), "leave; finish");
}

TEST_F(StreamingLoopTest, AFinishOnHoldWaitsOnlyForWhatIsInFlight) {
  PushFirst();
  loop_.OnHold("pause");
  loop_.OnFinish();
  EXPECT_EQ(NextLine(),
            "wait(finishing: waiting for the outcome of its contributions)");
  Commit(0, 1);
  Publish();
  EXPECT_EQ(Trace(), "leave; finish");
}

}  // namespace
}  // namespace atl::worker
