#include "server/core/blocked_reasons.h"

#include <string>

#include "gtest/gtest.h"

namespace atl::server {
namespace {

using Cause = BlockedReasons::Cause;

Cause CauseOf(ActionKind kind, int32_t fragment = 0) {
  return {static_cast<int>(kind), fragment, 0, ""};
}

v1::ServerRunPlan PlanIn(v1::RunState state) {
  v1::ServerRunPlan plan;
  plan.set_run_state(state);
  return plan;
}

TEST(BlockedReasonsTest, AReasonIsNewOnceUntilItChanges) {
  BlockedReasons reasons;
  EXPECT_EQ(reasons.First(), "");
  EXPECT_TRUE(reasons.Note(CauseOf(ActionKind::kPersist), "full"));
  EXPECT_FALSE(reasons.Note(CauseOf(ActionKind::kPersist), "full"));
  EXPECT_TRUE(reasons.Note(CauseOf(ActionKind::kPersist), "broken"));
  EXPECT_EQ(reasons.First(), "broken");
  reasons.Erase(CauseOf(ActionKind::kPersist));
  EXPECT_EQ(reasons.First(), "");
}

TEST(BlockedReasonsTest, AReasonIsCutToWhatAReportHolds) {
  BlockedReasons reasons;
  const std::string reason(513, 'x');
  EXPECT_TRUE(reasons.Note(CauseOf(ActionKind::kPersist), reason));
  EXPECT_EQ(reasons.First(), reason.substr(0, 512));
  EXPECT_FALSE(reasons.Note(CauseOf(ActionKind::kPersist), reason));
}

TEST(BlockedReasonsTest, AMergeIsForgottenWithItsSeal) {
  BlockedReasons reasons;
  v1::ServerRunPlan plan = PlanIn(v1::RUN_STATE_ACTIVE);
  plan.add_seals()->set_fragment(1);
  reasons.Note(CauseOf(ActionKind::kPrepare, 1), "no room");
  reasons.Forget(plan);
  EXPECT_EQ(reasons.First(), "no room");
  plan.mutable_seals(0)->set_fragment(2);
  reasons.Forget(plan);
  EXPECT_EQ(reasons.First(), "");
}

TEST(BlockedReasonsTest, TakingContributionsIsForgottenWithoutARound) {
  BlockedReasons reasons;
  const Cause take = {Cause::kTakeContributions, 3, 0, ""};
  v1::ServerRunPlan plan = PlanIn(v1::RUN_STATE_ACTIVE);
  plan.add_open_rounds()->set_fragment(3);
  reasons.Note(take, "no room");
  reasons.Forget(plan);
  EXPECT_EQ(reasons.First(), "no room");
  // An import comes before any round.
  reasons.Forget(PlanIn(v1::RUN_STATE_STARTING));
  EXPECT_EQ(reasons.First(), "no room");
  reasons.Forget(PlanIn(v1::RUN_STATE_ACTIVE));
  EXPECT_EQ(reasons.First(), "");
}

TEST(BlockedReasonsTest, ACheckpointIsForgottenWithItsPin) {
  BlockedReasons reasons;
  ShardAction action;
  action.kind = ActionKind::kWriteManifest;
  action.pin.set_pin_id("round-1");
  reasons.Note(BlockedReasons::ToCause(action), "no room");
  v1::ServerRunPlan plan = PlanIn(v1::RUN_STATE_COMPLETED);
  plan.add_pins()->set_pin_id("round-1");
  reasons.Forget(plan);
  EXPECT_EQ(reasons.First(), "no room");
  plan.clear_pins();
  reasons.Forget(plan);
  EXPECT_EQ(reasons.First(), "");
}

TEST(BlockedReasonsTest, TheMirrorIsForgottenOnceItLacksNoCheckpoint) {
  BlockedReasons reasons;
  const Cause mirror = {Cause::kMirror, 0, 0, ""};
  v1::ServerRunPlan plan = PlanIn(v1::RUN_STATE_COMPLETED);
  v1::Pin& pin = *plan.add_pins();
  pin.set_checkpoint(true);
  reasons.Note(mirror, "the bucket is away");
  reasons.Forget(plan);
  EXPECT_EQ(reasons.First(), "the bucket is away");
  pin.mutable_mirror()->set_run_epoch(1);
  plan.add_pins()->set_pin_id("a reader's");
  reasons.Forget(plan);
  EXPECT_EQ(reasons.First(), "");
}

TEST(BlockedReasonsTest, AnEndedRunStillPersistsAndIsRead) {
  BlockedReasons reasons;
  reasons.Note(CauseOf(ActionKind::kDrop), "dropping");
  reasons.Note(CauseOf(ActionKind::kPersist), "persisting");
  const Cause read = {Cause::kReadVersion, 0, 7, ""};
  reasons.Note(read, "reading");
  reasons.Forget(PlanIn(v1::RUN_STATE_COMPLETED));
  EXPECT_EQ(reasons.First(), "persisting");
  reasons.Erase(CauseOf(ActionKind::kPersist));
  EXPECT_EQ(reasons.First(), "reading");
  reasons.Erase(read);
  EXPECT_EQ(reasons.First(), "");
}

TEST(BlockedReasonsTest, APreparedVersionNeedsNoMeasuring) {
  BlockedReasons reasons;
  reasons.Note(CauseOf(ActionKind::kMeasure, 1), "measuring");
  reasons.Note(CauseOf(ActionKind::kLiveMerge, 1), "merging");
  reasons.OnPrepared(0);
  EXPECT_NE(reasons.First(), "");
  reasons.OnPrepared(1);
  EXPECT_EQ(reasons.First(), "");
}

}  // namespace
}  // namespace atl::server
