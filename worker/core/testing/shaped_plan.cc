#include "worker/core/testing/shaped_plan.h"

#include <new>

#include "base/layout/fragment_schedule.h"
#include "worker/core/testing/own_slot.h"

namespace atl::worker {

ShapedPlan::ShapedPlan() {
  Spec().mutable_inner()->set_batch_size(kBatch);
  join_.mutable_run()->set_run_epoch(1);
  join_.set_island_epoch(1);
  join_.set_slot(kSlot);
  join_.set_next_seq(1);
  join_.set_data_shard(kSlot);
  plan_.set_coordinator_epoch(1);
  plan_.set_run_id(kRun);
  plan_.set_run_epoch(1);
  plan_.set_run_state(v1::RUN_STATE_ACTIVE);
  plan_.set_slot(kSlot);
  plan_.set_island_epoch(1);
  plan_.add_shards()->set_address("a:1");
}

void ShapedPlan::AddFragment(int64_t version) {
  v1::FragmentVersion& cut = *plan_.add_cut();
  cut.set_fragment(plan_.cut_size() - 1);
  cut.set_version(version);
}

void ShapedPlan::OpenInStream(int32_t fragment_count, int32_t fragment,
                              const std::vector<int32_t>& slots) {
  const int64_t version = Version(fragment);
  v1::OpenRound& open = *plan_.add_open_rounds();
  open.set_fragment(fragment);
  open.set_version(version);
  const int64_t start =
      StartStep(Schedule(), fragment_count, fragment, version);
  for (const int32_t slot : slots) {
    v1::SlotPlan& plan = *open.add_slots();
    plan.set_slot(slot);
    plan.set_start_step(start);
    plan.set_step_count(
        PushStep(Schedule(), fragment_count, fragment, version) - start);
    plan.set_data_shard(slot);
  }
  KeepOwnSlot(kSlot, open);
}

void ShapedPlan::Close(int32_t fragment) {
  auto& rounds = *plan_.mutable_open_rounds();
  for (int i = 0; i < rounds.size(); ++i) {
    if (rounds[i].fragment() == fragment) return rounds.DeleteSubrange(i, 1);
  }
}

void ShapedPlan::Advance(int32_t fragment) {
  v1::FragmentVersion& cut = *plan_.mutable_cut(fragment);
  cut.set_version(cut.version() + 1);
  plan_.set_commit_seq(plan_.commit_seq() + 1);
  cut.set_commit_seq(plan_.commit_seq());
}

void ShapedPlan::Decide(int32_t fragment, int64_t seq, v1::Outcome outcome) {
  v1::ContributionOutcome& added = *plan_.add_outcomes();
  added.mutable_key()->set_run_epoch(plan_.run_epoch());
  added.mutable_key()->set_fragment(fragment);
  added.mutable_key()->set_slot(kSlot);
  added.mutable_key()->set_seq(seq);
  added.set_outcome(outcome);
}

void IslandLoopFixture::Join() {
  *join_.mutable_plan() = plan_;
  loop_.OnJoined(join_);
}

void IslandLoopFixture::Publish() {
  plan_.set_revision(plan_.revision() + 1);
  loop_.OnPlan(plan_);
}

void IslandLoopFixture::NewLoop() {
  loop_.~IslandLoop();
  new (&loop_) IslandLoop(kRun);
}

}  // namespace atl::worker
