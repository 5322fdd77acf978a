// Traces of the loop when the run is restored to an earlier cut: rounds,
// streaming, eager, async.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status/not_finite.h"
#include "gtest/gtest.h"
#include "worker/core/island_loop.h"
#include "worker/core/testing/own_slot.h"
#include "worker/core/testing/shaped_plan.h"

namespace atl::worker {
namespace {

class RestoreTest : public IslandLoopFixture {
 protected:
  static std::string Line(const Action& action) {
    std::string line = ActionName(action.kind);
    switch (action.kind) {
      case ActionKind::kPull:
        return absl::StrCat(line, " f", action.fragment, " v", action.version,
                            " from ", action.from_version);
      case ActionKind::kPush:
        return absl::StrCat(line, " f", action.fragment, " #", action.seq);
      case ActionKind::kTrain:
        return absl::StrCat(line, " ", action.step, " @", action.data_position);
      case ActionKind::kContribute:
        return absl::StrCat(line, " #", action.seq);
      case ActionKind::kReportReady:
        return absl::StrCat(line, " ", action.commit_seq);
      case ActionKind::kResetOptimizer:
        return absl::StrCat(line, action.warm_up ? " warm" : "", " e",
                            action.run_epoch, " r", action.commit_seq);
      case ActionKind::kEvaluate:
        return absl::StrCat("evaluate v", action.version);
      default:
        return line;
    }
  }
  // Does what is due up to a wait, the end, or `end`, which it does not do.
  std::string Trace(ActionKind end = ActionKind::kWait) {
    std::vector<std::string> lines;
    for (int i = 0; i < 100; ++i) {
      const Action action = loop_.Next();
      lines.push_back(Line(action));
      if (action.kind == ActionKind::kWait ||
          action.kind == ActionKind::kFinish || action.kind == end) {
        break;
      }
      if (action.kind == ActionKind::kLoadSave) {
        loop_.OnSaveLoaded(save_);
        continue;
      }
      Start(Lane::kTraining, action);
      loop_.OnDone(action, absl::OkStatus());
    }
    return absl::StrJoin(lines, "; ");
  }
  std::string UntilTrain() { return Trace(ActionKind::kTrain); }
  void Start(Lane lane, const Action& action) {
    if (loop_.streaming()) loop_.OnStarted(lane, action);
  }
  // Begins the next action of `lane`, whose end the test tells.
  Action Begin(Lane lane = Lane::kTraining) {
    const Action action = loop_.Next(lane);
    Start(lane, action);
    return action;
  }
  void Finish(const Action& action,
              const absl::Status& status = absl::OkStatus()) {
    loop_.OnDone(action, status);
  }
  // All fragments go back to `version`, as commit `commit_seq`.
  void Restore(int64_t version, int64_t commit_seq) {
    plan_.set_run_epoch(plan_.run_epoch() + 1);
    plan_.set_commit_seq(commit_seq);
    plan_.set_restored_commit_seq(commit_seq);
    plan_.clear_open_rounds();
    plan_.clear_outcomes();
    for (v1::FragmentVersion& at : *plan_.mutable_cut()) {
      at.set_version(version);
      at.set_commit_seq(version);
    }
    join_.mutable_run()->set_run_epoch(plan_.run_epoch());
    join_.clear_outcomes();
  }

  std::optional<SaveSummary> save_;
};

// One fragment, H = 2; another island holds slot 0.
class RoundsRestoreTest : public RestoreTest {
 protected:
  RoundsRestoreTest() {
    Schedule().set_timing(v1::TIMING_STRICT);
    Schedule().set_inner_step_count(2);
    Schedule().set_round_count(50);
    Spec().mutable_evaluation()->set_every_round_count(1);
    AddFragment();
    Open();
  }
  void Open() {
    v1::OpenRound& open = *plan_.add_open_rounds();
    open.set_version(Version(0));
    for (const int32_t slot : {0, kSlot}) {
      v1::SlotPlan& plan = *open.add_slots();
      plan.set_slot(slot);
      plan.set_step_count(2);
      plan.set_start_step(2 * Version(0));
      plan.set_data_shard(slot);
      plan.set_data_position(8 * Version(0));
    }
    KeepOwnSlot(kSlot, open);
  }
  void Commit(int64_t seq) {
    Decide(0, seq, v1::OUTCOME_MERGED);
    Close(0);
    Advance(0);
    Open();
    Publish();
  }
  // Trains and pushes rounds up to the wait for the commit of `version`.
  void TrainUpTo(int64_t version) {
    Join();
    Trace();
    for (int64_t v = 1; v < version; ++v) {
      Commit(v);
      Trace();
    }
  }
  SaveSummary SaveOf(int64_t run_epoch) {
    SaveSummary save;
    save.run_id = kRun;
    save.run_epoch = run_epoch;
    save.slot = kSlot;
    save.seq = 2;
    save.contributions = {{0, 1}};
    save.data_shard = kSlot;
    save.data_position = 16;
    return save;
  }
};

TEST_F(RoundsRestoreTest, AWaitForACommitEndsAndTheIslandStartsAfresh) {
  TrainUpTo(4);
  Restore(/*version=*/1, /*commit_seq=*/4);
  Publish();
  // The members are JOINING: no round is open before all are ready.
  EXPECT_EQ(Trace(), "pull f0 v1 from -1; reset_optimizer warm e2 r4; "
                     "report_ready 4; wait");
  Open();
  Publish();
  EXPECT_EQ(Trace(), "begin_round; train 2 @8; train 3 @12; contribute #5; "
                     "push f0 #5; wait")
      << "clock and data are the plan's, and no number is used twice";
}

TEST_F(RoundsRestoreTest, VersionsAfterTheCutAreEvaluatedAnew) {
  TrainUpTo(4);
  Restore(/*version=*/1, /*commit_seq=*/4);
  Open();
  Publish();
  EXPECT_EQ(Trace(), "pull f0 v1 from -1; reset_optimizer warm e2 r4; "
                     "report_ready 4; begin_round; train 2 @8; train 3 @12; "
                     "contribute #5; push f0 #5; wait");
  Commit(5);
  Trace();
  Commit(6);
  // Slot 1 of 2 has the odd versions.
  EXPECT_EQ(Trace(ActionKind::kBeginRound),
            "pull f0 v3 from 2; evaluate v3; begin_round");
}

TEST_F(RoundsRestoreTest, AJoinTellsOfARestoreToo) {
  TrainUpTo(4);
  loop_.OnConnection(false);
  Restore(/*version=*/1, /*commit_seq=*/4);
  join_.set_island_epoch(2);
  plan_.set_island_epoch(2);
  join_.set_data_position(8);
  Open();
  Join();
  EXPECT_EQ(UntilTrain(), "pull f0 v1 from -1; reset_optimizer warm e2 r4; "
                          "report_ready 4; begin_round; train 2 @8")
      << "its own position was of windows after the cut";
}

TEST_F(RoundsRestoreTest, ASaveFromBeforeTheRestoreIsNotRestored) {
  for (const int restore_count : {1, 2}) {
    NewLoop();
    save_ = SaveOf(/*run_epoch=*/plan_.run_epoch());
    for (int i = 0; i < restore_count; ++i) {
      Restore(/*version=*/1, /*commit_seq=*/4 + i);
    }
    Open();
    Join();
    EXPECT_EQ(
        UntilTrain(),
        absl::StrCat("load_save; pull f0 v1 from -1; reset_optimizer warm e",
                     plan_.run_epoch(), " r", plan_.restored_commit_seq(),
                     "; report_ready ", plan_.restored_commit_seq(),
                     "; begin_round; train 2 @8"));
  }
}

TEST_F(RoundsRestoreTest, ASaveFromAfterTheRestoreIsRestored) {
  Restore(/*version=*/1, /*commit_seq=*/4);
  save_ = SaveOf(/*run_epoch=*/2);
  Open();
  Join();
  EXPECT_EQ(Trace(), "load_save; report_ready 4; push f0 #2; wait");
  Commit(2);
  EXPECT_EQ(Trace(ActionKind::kBeginRound),
            "pull f0 v2 from -1; restore_save; begin_round");
}

TEST_F(RoundsRestoreTest, APushThatAServerEndsDoesNotEndTheIsland) {
  Join();
  Trace(ActionKind::kPush);
  const Action push = Begin();
  Restore(/*version=*/0, /*commit_seq=*/1);
  Open();
  Publish();
  Finish(push, absl::AbortedError("another run_epoch"));
  EXPECT_EQ(UntilTrain(), "pull f0 v0 from -1; reset_optimizer warm e2 r1; "
                          "report_ready 1; begin_round; train 0 @0");
}

TEST_F(RoundsRestoreTest, ACompleteRunGoesOn) {
  Schedule().set_round_count(2);
  TrainUpTo(2);
  Close(0);
  Decide(0, 2, v1::OUTCOME_MERGED);
  Advance(0);
  plan_.set_run_state(v1::RUN_STATE_COMPLETED);
  plan_.mutable_shards(0)->set_address("");
  Publish();
  // Before the island has ended.
  Restore(/*version=*/1, /*commit_seq=*/3);
  plan_.set_run_state(v1::RUN_STATE_ACTIVE);
  plan_.mutable_shards(0)->set_address("a:1");
  Open();
  Publish();
  EXPECT_EQ(UntilTrain(), "pull f0 v1 from -1; reset_optimizer warm e2 r3; "
                          "report_ready 3; begin_round; train 2 @8");
}

// Two fragments, staggered, with an overlap of one step.
class StreamingRestoreTest : public RestoreTest,
                             public testing::WithParamInterface<bool> {
 protected:
  StreamingRestoreTest() {
    Schedule().set_timing(v1::TIMING_STRICT);
    Schedule().set_inner_step_count(4);
    Schedule().set_round_count(9);
    Schedule().set_fragment_schedule(v1::FRAGMENT_SCHEDULE_STAGGERED);
    Schedule().set_overlap_step_count(1);
    Schedule().set_eager(GetParam());
    for (int32_t f = 0; f < 2; ++f) {
      AddFragment();
      OpenInStream(2, f);
    }
  }
  void PullAll() {
    while (loop_.Next(Lane::kPull).kind == ActionKind::kPull) {
      Finish(Begin(Lane::kPull));
    }
  }
  void Start() {
    Join();
    Trace();
    PullAll();
  }
  void RestoreToBegin(int64_t commit_seq) {
    Restore(/*version=*/0, commit_seq);
    for (int32_t f = 0; f < 2; ++f) OpenInStream(2, f);
    Publish();
  }
};
INSTANTIATE_TEST_SUITE_P(Eager, StreamingRestoreTest, testing::Bool());

TEST_P(StreamingRestoreTest, EveryLaneDropsWhatItDoes) {
  Start();
  EXPECT_EQ(Trace(ActionKind::kContribute),
            "report_ready 0; begin_round; train 0 @0; train 1 @4; "
            "contribute #1");
  // Contribution 1 is saved and pushed, while training goes on.
  Finish(Begin());
  Finish(Begin(Lane::kSave));
  const Action push = Begin(Lane::kPush);
  ASSERT_EQ(push.kind, ActionKind::kPush);
  const Action train = Begin();
  ASSERT_EQ(train.kind, ActionKind::kTrain);
  RestoreToBegin(7);
  EXPECT_EQ(loop_.Next(Lane::kPush).kind, ActionKind::kWait);
  PullAll();
  Finish(train);
  Finish(push, absl::AbortedError("another run_epoch"));
  EXPECT_EQ(Trace(ActionKind::kContribute),
            "reset_optimizer warm e2 r7; report_ready 7; begin_round; "
            "train 0 @0; train 1 @4; contribute #2");
}

TEST_P(StreamingRestoreTest, AResetWaitsForASaveOfThePast) {
  Start();
  Trace(ActionKind::kContribute);
  Finish(Begin());
  const Action save = Begin(Lane::kSave);
  ASSERT_EQ(save.kind, ActionKind::kSave);
  RestoreToBegin(7);
  PullAll();
  EXPECT_EQ(Trace(), "wait") << "both use the encoder";
  Finish(save);
  EXPECT_EQ(UntilTrain(), "reset_optimizer warm e2 r7; report_ready 7; "
                          "begin_round; train 0 @0");
}

TEST_P(StreamingRestoreTest, APullOfThePastCountsForNothing) {
  Join();
  Trace();
  const Action pull = Begin(Lane::kPull);
  ASSERT_EQ(pull.kind, ActionKind::kPull);
  RestoreToBegin(7);
  Finish(pull);
  EXPECT_EQ(Trace(), "wait");
  EXPECT_EQ(loop_.Next(Lane::kPull).from_version, -1);
  PullAll();
  EXPECT_EQ(UntilTrain(), "reset_optimizer warm e2 r7; report_ready 7; "
                          "begin_round; train 0 @0");
}

TEST_P(StreamingRestoreTest, AReportOfThePastMakesNoneReady) {
  Start();
  const Action report = Begin();
  ASSERT_EQ(report.kind, ActionKind::kReportReady);
  RestoreToBegin(7);
  Finish(report);
  EXPECT_FALSE(loop_.ready());
  PullAll();
  EXPECT_EQ(UntilTrain(), "reset_optimizer warm e2 r7; report_ready 7; "
                          "begin_round; train 0 @0");
}

TEST_P(StreamingRestoreTest, AStepThatWasNotFiniteIsNoFailureOfTheNewPast) {
  Start();
  Trace(ActionKind::kTrain);
  const Action train = Begin();
  RestoreToBegin(7);
  PullAll();
  Finish(train, NotFinite(NotFiniteOf::kStep, absl::InternalError("nan")));
  EXPECT_EQ(UntilTrain(), "reset_optimizer warm e2 r7; report_ready 7; "
                          "begin_round; train 0 @0");
}

TEST_P(StreamingRestoreTest, ATrainerThatCannotContinueLeaves) {
  Start();
  Trace(ActionKind::kTrain);
  const Action train = Begin();
  RestoreToBegin(7);
  Finish(train, absl::InvalidArgumentError("the data is unusable"));
  EXPECT_EQ(Trace(), "leave; finish");
}

TEST_P(StreamingRestoreTest, ASecondRestoreDuringTheFirstReset) {
  Start();
  Trace(ActionKind::kTrain);
  RestoreToBegin(7);
  PullAll();
  const Action reset = Begin();
  ASSERT_EQ(reset.kind, ActionKind::kResetOptimizer);
  RestoreToBegin(8);
  Finish(reset);
  PullAll();
  EXPECT_EQ(UntilTrain(), "reset_optimizer warm e3 r8; report_ready 8; "
                          "begin_round; train 0 @0");
}

}  // namespace
}  // namespace atl::worker
