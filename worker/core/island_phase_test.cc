#include "worker/core/island_phase.h"

#include <map>
#include <string>

#include "gtest/gtest.h"
#include "worker/core/data_awaited.h"
#include "worker/core/testing/shaped_plan.h"

namespace atl::worker {
namespace {

TEST(IslandPhaseTest, IsThatOfTheTrainingLanesAction) {
  const std::map<ActionKind, v1::IslandPhase> phases = {
      {ActionKind::kWait, v1::ISLAND_PHASE_WAIT},
      {ActionKind::kLoadSave, v1::ISLAND_PHASE_WAIT},
      {ActionKind::kPush, v1::ISLAND_PHASE_UPLOAD},
      {ActionKind::kPull, v1::ISLAND_PHASE_PULL},
      {ActionKind::kTrain, v1::ISLAND_PHASE_TRAIN},
      {ActionKind::kContribute, v1::ISLAND_PHASE_TRAIN},
      {ActionKind::kEvaluate, v1::ISLAND_PHASE_TRAIN},
  };
  for (const auto& [kind, phase] : phases) {
    EXPECT_EQ(FindPhase(MakeAction(kind, ""), {}), phase) << ActionName(kind);
  }
}

TEST(IslandPhaseTest, AWaitTellsOnWhat) {
  const Action wait = MakeAction(ActionKind::kWait, "");
  EXPECT_EQ(FindPhase(wait, {.pulls = true}), v1::ISLAND_PHASE_PULL);
  EXPECT_EQ(FindPhase(wait, {.pushes = true, .pulls = true}),
            v1::ISLAND_PHASE_UPLOAD);
  EXPECT_EQ(FindPhase(wait, {.awaits_data = true, .pushes = true}),
            v1::ISLAND_PHASE_DATA);
  EXPECT_EQ(FindPhase(wait, {.on_hold = true, .awaits_data = true}),
            v1::ISLAND_PHASE_PAUSED);
  // A push or a step that is not over yet is its work.
  const Action push = MakeAction(ActionKind::kPush, "");
  EXPECT_EQ(FindPhase(push, {.on_hold = true}), v1::ISLAND_PHASE_UPLOAD);
  const Action train = MakeAction(ActionKind::kTrain, "");
  EXPECT_EQ(FindPhase(train, {.pushes = true}), v1::ISLAND_PHASE_TRAIN);
}

class PhaseReasonTest : public IslandLoopFixture {};

TEST_F(PhaseReasonTest, TellsNothingThatOnlyTheIslandsUserMaySee) {
  Schedule().set_timing(v1::TIMING_ELASTIC);
  Schedule().set_inner_step_count(3);
  Schedule().set_round_count(10);
  AddFragment();
  Join();
  loop_.OnSaveLoaded(std::nullopt);
  loop_.OnHold("my dinner");
  Publish();
  while (loop_.Next().kind != ActionKind::kWait) {
    loop_.OnDone(loop_.Next(), absl::OkStatus());
  }
  EXPECT_TRUE(loop_.on_hold());
  EXPECT_NE(loop_.Next().reason.find("my dinner"), std::string::npos);
  EXPECT_EQ(PhaseReason(loop_.Next()), "paused by its user");
}

TEST_F(PhaseReasonTest, NamesTheDataFileAndNotItsPlaceHere) {
  Schedule().set_timing(v1::TIMING_ELASTIC);
  Schedule().set_inner_step_count(3);
  Schedule().set_round_count(10);
  AddFragment();
  v1::OpenRound& open = *plan_.add_open_rounds();
  v1::SlotPlan& slot = *open.add_slots();
  slot.set_slot(kSlot);
  slot.set_step_count(3);
  Join();
  loop_.OnSaveLoaded(std::nullopt);
  Publish();
  while (loop_.Next().kind != ActionKind::kTrain) {
    ASSERT_NE(loop_.Next().kind, ActionKind::kWait) << loop_.Next().reason;
    loop_.OnDone(loop_.Next(), absl::OkStatus());
  }
  EXPECT_FALSE(loop_.awaits_data());
  loop_.OnDone(loop_.Next(), DataAwaited("/home/me/a.bin is not here", "a.bin"));
  EXPECT_TRUE(loop_.awaits_data());
  EXPECT_EQ(PhaseReason(loop_.Next()), "waits for the data file a.bin");
  loop_.OnDataCame();
  EXPECT_FALSE(loop_.awaits_data());
}

}  // namespace
}  // namespace atl::worker
