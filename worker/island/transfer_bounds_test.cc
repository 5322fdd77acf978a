#include "worker/island/transfer_bounds.h"

#include <stop_token>

#include "gtest/gtest.h"
#include "worker/island/testing/tiny_run.h"

namespace atl::worker {
namespace {

class TransferBoundsTest : public testing::Test {
 protected:
  TransferBoundsTest()
      : spec_(TinyRun({})), layout_(*RunLayout::Create(spec_.layout())) {
    info_.mutable_key()->set_seq(1);
    info_.set_anchor_version(3);
  }

  TransferBounds::Env Env(bool is_leaving = false) {
    return {mailbox_, spec_, layout_, leave_.get_token(), is_leaving};
  }

  static Action Push() {
    Action action;
    action.kind = ActionKind::kPush;
    action.seq = 1;
    return action;
  }

  static Action PullOf(int64_t version) {
    Action action;
    action.kind = ActionKind::kPull;
    action.version = version;
    return action;
  }

  static v1::IslandPlan PlanAt(int64_t version, v1::RunState state) {
    v1::IslandPlan plan;
    plan.set_run_state(state);
    plan.add_cut()->set_version(version);
    return plan;
  }

  v1::RunSpec spec_;
  RunLayout layout_;
  Mailbox mailbox_;
  std::stop_source leave_;
  v1::ContributionInfo info_;
};

const absl::Status kCancelled = absl::CancelledError("stopped");

TEST_F(TransferBoundsTest, APushThatAPlanHasDecidedIsDone) {
  const TransferBounds bounds(Env(), Lane::kTraining, Push(), &info_);
  mailbox_.PutPlan(PlanAt(3, v1::RUN_STATE_ACTIVE));
  EXPECT_FALSE(bounds.call().stop.stop_requested());
  EXPECT_TRUE(absl::IsCancelled(bounds.Settle(kCancelled)));
  v1::IslandPlan plan = PlanAt(4, v1::RUN_STATE_ACTIVE);
  mailbox_.PutPlan(plan);
  EXPECT_TRUE(bounds.call().stop.stop_requested());
  // Its round has ended without it.
  EXPECT_TRUE(absl::IsCancelled(bounds.Settle(kCancelled)));
  *plan.add_outcomes()->mutable_key() = info_.key();
  mailbox_.PutPlan(plan);
  EXPECT_TRUE(bounds.Settle(kCancelled).ok());
  const absl::Status other = absl::UnavailableError("away");
  EXPECT_EQ(bounds.Settle(other), other);
}

TEST_F(TransferBoundsTest, APauseStopsAPushButNotOneThatAShardLost) {
  {
    const TransferBounds bounds(Env(), Lane::kTraining, Push(), &info_);
    mailbox_.PutPlan(PlanAt(3, v1::RUN_STATE_PAUSED));
    EXPECT_TRUE(bounds.call().stop.stop_requested());
    EXPECT_TRUE(absl::IsCancelled(bounds.Settle(kCancelled)));
  }
  Action again = Push();
  again.needs_repush = true;
  const TransferBounds bounds(Env(), Lane::kTraining, again, &info_);
  mailbox_.PutPlan(PlanAt(3, v1::RUN_STATE_PAUSED));
  EXPECT_FALSE(bounds.call().stop.stop_requested());
  mailbox_.PutPlan(PlanAt(3, v1::RUN_STATE_CANCELLED));
  EXPECT_TRUE(bounds.call().stop.stop_requested());
}

TEST_F(TransferBoundsTest, TheWishToLeaveStopsATransferUntilTheLoopKnows) {
  {
    const TransferBounds bounds(Env(), Lane::kTraining, Push(), &info_);
    EXPECT_EQ(bounds.call().deadline, absl::InfiniteFuture());
    leave_.request_stop();
    EXPECT_TRUE(bounds.call().stop.stop_requested());
  }
  {
    const TransferBounds bounds(Env(/*is_leaving=*/true), Lane::kTraining,
                                Push(), &info_);
    EXPECT_FALSE(bounds.call().stop.stop_requested());
    EXPECT_LT(bounds.call().deadline, absl::InfiniteFuture());
  }
  // An island that leaves needs no parameters.
  const TransferBounds bounds(Env(/*is_leaving=*/true), Lane::kTraining,
                              PullOf(0), nullptr);
  EXPECT_TRUE(bounds.call().stop.stop_requested());
}

TEST_F(TransferBoundsTest, APullEndsWhenItsVersionIsTooOld) {
  const TransferBounds bounds(Env(), Lane::kTraining, PullOf(3), nullptr);
  mailbox_.PutPlan(PlanAt(3, v1::RUN_STATE_ACTIVE));
  EXPECT_FALSE(bounds.call().stop.stop_requested());
  mailbox_.PutPlan(PlanAt(1000, v1::RUN_STATE_ACTIVE));
  EXPECT_TRUE(bounds.call().stop.stop_requested());
}

TEST_F(TransferBoundsTest, AnEvaluationEndsWhenAllOfItsVersionsAreTooOld) {
  Action evaluate;
  evaluate.kind = ActionKind::kEvaluate;
  for (int32_t f : {0, 1}) {
    evaluate.cut.emplace_back().set_fragment(f);
    evaluate.cut.back().set_version(3);
  }
  const TransferBounds bounds(Env(), Lane::kTraining, evaluate, nullptr);
  v1::IslandPlan plan = PlanAt(5, v1::RUN_STATE_ACTIVE);
  plan.add_cut()->set_fragment(1);
  plan.mutable_cut(1)->set_version(4);
  mailbox_.PutPlan(plan);
  EXPECT_FALSE(bounds.call().stop.stop_requested());
  plan.mutable_cut(1)->set_version(5);
  mailbox_.PutPlan(plan);
  EXPECT_TRUE(bounds.call().stop.stop_requested());
}

TEST_F(TransferBoundsTest, ALiveMergeIsWaitedForLonger) {
  EXPECT_EQ(
      TransferBounds(Env(), Lane::kTraining, Push(), &info_).call().idle_max,
      kTransferIdleMax);
  spec_.set_durability(v1::DURABILITY_ISLAND);
  EXPECT_EQ(
      TransferBounds(Env(), Lane::kTraining, Push(), &info_).call().idle_max,
      kLiveMergeIdleMax);
  EXPECT_EQ(TransferBounds(Env(), Lane::kTraining, PullOf(0), nullptr)
                .call()
                .idle_max,
            kTransferIdleMax);
}

}  // namespace
}  // namespace atl::worker
