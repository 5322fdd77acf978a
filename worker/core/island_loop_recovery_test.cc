// Traces of the loop after steps and contributions that are not finite.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status/not_finite.h"
#include "gtest/gtest.h"
#include "worker/core/data_awaited.h"
#include "worker/core/island_loop.h"
#include "worker/core/testing/own_slot.h"
#include "worker/core/testing/shaped_plan.h"

namespace atl::worker {
namespace {

constexpr int32_t kFragments = 2;

absl::Status OfOneStep() {
  return NotFinite(NotFiniteOf::kStep, absl::InternalError("loss is nan"));
}
absl::Status OfAnother() {
  return NotFinite(NotFiniteOf::kOther, absl::InternalError("loss is nan"));
}

class RecoveryTest : public IslandLoopFixture {
 protected:
  static std::string Line(const Action& action) {
    std::string line = ActionName(action.kind);
    switch (action.kind) {
      case ActionKind::kPull:
      case ActionKind::kPush:
        return absl::StrCat(line, " f", action.fragment);
      case ActionKind::kTrain:
        return absl::StrCat(line, " ", action.step, " @", action.data_position);
      case ActionKind::kContribute:
        return absl::StrCat(line, " #", action.seq, " x", action.step_count);
      case ActionKind::kEvaluate:
        return absl::StrCat(action.checks_anchors ? "check v" : "evaluate v",
                            action.version);
      default:
        return line;
    }
  }
  // Does what is due, up to a wait, the end, or `end`, which it does not do.
  std::string Trace(ActionKind end = ActionKind::kWait,
                    Lane lane = Lane::kTraining) {
    std::vector<std::string> lines;
    for (int i = 0; i < 100; ++i) {
      const Action action = loop_.Next(lane);
      lines.push_back(Line(action));
      if (action.kind == ActionKind::kWait ||
          action.kind == ActionKind::kFinish || action.kind == end) {
        break;
      }
      if (action.kind == ActionKind::kLoadSave) {
        loop_.OnSaveLoaded(std::nullopt);
      } else {
        Done(absl::OkStatus(), lane);
      }
    }
    return absl::StrJoin(lines, "; ");
  }
  std::string UntilTrain() { return Trace(ActionKind::kTrain); }
  std::string UntilCheck() { return Trace(ActionKind::kEvaluate); }
  // The end of the next action.
  void Done(const absl::Status& status, Lane lane = Lane::kTraining) {
    const Action action = loop_.Next(lane);
    if (loop_.streaming()) loop_.OnStarted(lane, action);
    loop_.OnDone(action, status);
  }
  void DoSteps(int count) {
    for (int i = 0; i < count; ++i) Done(absl::OkStatus());
  }
};

// H = 2, one fragment; another island holds slot 0.
class RoundsRecoveryTest : public RecoveryTest {
 protected:
  RoundsRecoveryTest() {
    Schedule().set_timing(v1::TIMING_ELASTIC);
    Schedule().set_inner_step_count(2);
    Schedule().set_round_count(50);
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
    }
    KeepOwnSlot(kSlot, open);
  }
  // The others' version comes, and its round opens.
  void NewVersion() {
    Close(0);
    Advance(0);
    Open();
    Publish();
  }
};

TEST_F(RoundsRecoveryTest, AnAnchorThatIsNotFiniteIsWaitedOut) {
  Join();
  EXPECT_EQ(UntilTrain(),
            "load_save; pull f0; report_ready; begin_round; train 0 @0");
  Done(OfOneStep());
  EXPECT_EQ(Trace(), "wait") << "the step has evaluated the anchor";
  EXPECT_EQ(loop_.Next().hindrance,
            "loss or gradient of version 0 is not finite here; waits for a "
            "newer version");
  NewVersion();
  EXPECT_EQ(UntilCheck(), "pull f0; check v1");
  Done(OfAnother());
  EXPECT_EQ(Trace(), "wait");
  EXPECT_TRUE(absl::StrContains(loop_.Next().hindrance, "version 1"));
  Publish();
  EXPECT_EQ(Trace(), "wait") << "a plan without a newer version";
  NewVersion();
  EXPECT_EQ(UntilTrain(),
            "pull f0; check v2; reset_optimizer; begin_round; train 4 @0");
  DoSteps(2);
  EXPECT_EQ(Trace(), "contribute #1 x2; push f0; wait");
  EXPECT_EQ(loop_.Next().hindrance, "");
}

TEST_F(RoundsRecoveryTest, AModelThatStaysNotFiniteEndsNoIsland) {
  Join();
  UntilTrain();
  Done(OfOneStep());
  for (int i = 0; i < 3 * Recovery::kTimesMax; ++i) {
    NewVersion();
    // Held-out tokens may say nothing of the tokens that are trained on.
    EXPECT_TRUE(absl::StrContains(UntilTrain(), "check"));
    Done(OfOneStep());
    EXPECT_EQ(Trace(), "wait");
  }
}

TEST_F(RoundsRecoveryTest, AFiniteAnchorIsBegunFromAgainTwice) {
  Join();
  UntilTrain();
  for (int64_t i = 1; i < Recovery::kTimesMax; ++i) {
    DoSteps(1);
    Done(OfOneStep());
    EXPECT_EQ(UntilTrain(),
              absl::StrCat("check v0; reset_optimizer; begin_round; train 0 @",
                           kBatch * i))
        << "from the batch that failed";
  }
  DoSteps(1);
  Done(OfOneStep());
  EXPECT_EQ(Trace(), "check v0; leave; finish");
  const absl::Status end = loop_.Next().status;
  EXPECT_TRUE(absl::IsInternal(end)) << end;
  EXPECT_TRUE(absl::StrContains(end.message(), "3 times in a row")) << end;
}

TEST_F(RoundsRecoveryTest, AMergedContributionEndsTheRow) {
  Join();
  UntilTrain();
  for (int64_t seq = 1; seq < 3 * Recovery::kTimesMax; ++seq) {
    DoSteps(1);
    Done(OfOneStep());
    UntilTrain();
    EXPECT_TRUE(absl::StrContains(Trace(), "push f0; wait"));
    Decide(0, seq, v1::OUTCOME_MERGED);
    NewVersion();
    EXPECT_TRUE(absl::StrContains(UntilTrain(), "train")) << seq;
  }
}

TEST_F(RoundsRecoveryTest, AContributionThatIsNotFiniteIsNotPushed) {
  Join();
  UntilTrain();
  for (int i = 1; i < Recovery::kTimesMax; ++i) {
    EXPECT_TRUE(
        absl::StrContains(Trace(ActionKind::kContribute), "contribute #1 x2"));
    Done(OfAnother());
    EXPECT_EQ(Trace(ActionKind::kBeginRound),
              "check v0; reset_optimizer; begin_round");
  }
  Trace(ActionKind::kContribute);
  Done(OfAnother());
  EXPECT_EQ(Trace(), "check v0; leave; finish");
}

TEST_F(RoundsRecoveryTest, AnEvaluationThatCannotBeMadeIsMadeAgain) {
  Join();
  UntilTrain();
  DoSteps(1);
  Done(OfOneStep());
  EXPECT_EQ(UntilCheck(), "check v0");
  Done(DataAwaited("file b, 3 %", "b"));
  EXPECT_EQ(Trace(), "wait");
  EXPECT_EQ(loop_.Next().hindrance, "waits for the data file b");
  loop_.OnDataCame();
  EXPECT_EQ(UntilCheck(), "check v0");
  Done(absl::UnavailableError("test"));
  EXPECT_EQ(Trace(), "wait");
  loop_.OnWaited();
  EXPECT_EQ(UntilCheck(), "check v0");
}

TEST_F(RoundsRecoveryTest, AWaitForDataNamesTheFileButNothingOfThisMachine) {
  Join();
  UntilTrain();
  Done(DataAwaited("file a/b.bin, 3 %, /home/x/cache is full", "a/b.bin"));
  EXPECT_EQ(loop_.Next().hindrance, "waits for the data file a/b.bin");
  loop_.OnDataCame();
  EXPECT_EQ(UntilTrain(), "train 0 @0");
  Done(DataAwaited("process 1 of the island: file a/b.bin"));
  EXPECT_EQ(loop_.Next().hindrance, "waits for a file of the run's data");
}

TEST_F(RoundsRecoveryTest, AnIslandThatWaitsCanFinishAndStop) {
  Join();
  UntilTrain();
  Done(OfOneStep());
  loop_.OnFinish();
  EXPECT_EQ(Trace(), "leave; finish");
}

// H = 4, two fragments, staggered, one step of overlap, strict.
class StreamingRecoveryTest : public RecoveryTest {
 protected:
  StreamingRecoveryTest() {
    Schedule().set_timing(v1::TIMING_STRICT);
    Schedule().set_inner_step_count(4);
    Schedule().set_round_count(9);
    Schedule().set_fragment_schedule(v1::FRAGMENT_SCHEDULE_STAGGERED);
    Schedule().set_overlap_step_count(1);
    for (int32_t f = 0; f < kFragments; ++f) {
      AddFragment();
      Open(f);
    }
  }
  void Open(int32_t f) { OpenInStream(kFragments, f); }
  void Commit(int32_t f, int64_t seq) {
    Decide(f, seq, v1::OUTCOME_MERGED);
    Close(f);
    Advance(f);
    Open(f);
    Publish();
  }
  void Begin() {
    Join();
    Trace();
    Trace(ActionKind::kWait, Lane::kPull);
    EXPECT_EQ(Trace(ActionKind::kContribute),
              "report_ready; begin_round; train 0 @0; train 1 @4; "
              "contribute #1 x2");
    Done(absl::OkStatus());
  }
};

TEST_F(StreamingRecoveryTest, WhatIsContributedIsPushedBeforeItBeginsAgain) {
  Begin();
  EXPECT_EQ(Line(loop_.Next()), "train 2 @8");
  Done(OfOneStep());
  EXPECT_EQ(Trace(), "wait");
  EXPECT_EQ(Trace(ActionKind::kWait, Lane::kSave), "save; wait");
  EXPECT_EQ(Trace(ActionKind::kWait, Lane::kPush), "push f0; wait");
  EXPECT_EQ(Trace(), "wait");
  Commit(0, 1);
  EXPECT_EQ(Trace(), "wait");
  EXPECT_EQ(Trace(ActionKind::kWait, Lane::kPull), "pull f0; wait");
  EXPECT_EQ(UntilTrain(),
            "check v0; reset_optimizer; begin_round; train 0 @8");
}

TEST_F(StreamingRecoveryTest, WhatCannotBeSavedIsNotPushed) {
  Begin();
  Done(OfAnother(), Lane::kSave);
  EXPECT_EQ(Trace(ActionKind::kWait, Lane::kPush), "wait");
  EXPECT_FALSE(loop_.saving());
  EXPECT_EQ(UntilTrain(),
            "check v0; reset_optimizer; begin_round; train 0 @8");
}

TEST_F(StreamingRecoveryTest, AnAnswerThatIsNotFiniteIsWaitedOut) {
  Begin();
  Trace(ActionKind::kWait, Lane::kSave);
  Trace(ActionKind::kWait, Lane::kPush);
  Commit(0, 1);
  Trace(ActionKind::kWait, Lane::kPull);
  EXPECT_EQ(Trace(ActionKind::kApply), "train 2 @8; apply");
  Done(absl::OkStatus());
  EXPECT_EQ(Line(loop_.Next()), "train 3 @12");
  Done(OfOneStep());
  EXPECT_EQ(UntilCheck(), "check v0") << "fragment 1 is at version 0";
  Done(OfAnother());
  EXPECT_EQ(Trace(), "wait");
  EXPECT_TRUE(absl::StrContains(loop_.Next().hindrance, "version 1"));
  Commit(1, 2);
  Trace(ActionKind::kWait, Lane::kPull);
  EXPECT_EQ(UntilCheck(), "check v1");
}

}  // namespace
}  // namespace atl::worker
