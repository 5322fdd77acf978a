#include "worker/core/plan_view.h"

#include <algorithm>

namespace atl::worker {

int64_t CutVersion(const v1::IslandPlan& plan, int32_t fragment) {
  return fragment >= 0 && fragment < plan.cut_size()
             ? plan.cut(fragment).version()
             : -1;
}

int64_t PlanView::CutCommitSeq() const {
  int64_t commit_seq = 0;
  for (const v1::FragmentVersion& fragment : plan.cut()) {
    commit_seq = std::max(commit_seq, fragment.commit_seq());
  }
  return commit_seq;
}

const v1::OpenRound* PlanView::FindOpen(int32_t fragment,
                                        int64_t version) const {
  for (const v1::OpenRound& open : plan.open_rounds()) {
    if (open.fragment() == fragment && open.version() == version) return &open;
  }
  return nullptr;
}

const v1::SlotPlan* PlanView::FindSlot(const v1::OpenRound& open) const {
  for (const v1::SlotPlan& slot_plan : open.slots()) {
    if (slot_plan.slot() == slot) return &slot_plan;
  }
  return nullptr;
}

v1::Outcome PlanView::FindOutcome(int32_t fragment, int64_t seq) const {
  const auto matches = [&](const v1::ContributionOutcome& outcome) {
    const v1::ContributionKey& key = outcome.key();
    return key.run_epoch() == run_epoch && key.fragment() == fragment &&
           key.slot() == slot && key.seq() == seq;
  };
  for (const v1::ContributionOutcome& outcome : plan.outcomes()) {
    if (matches(outcome)) return outcome.outcome();
  }
  for (const v1::ContributionOutcome& outcome : join_outcomes) {
    if (matches(outcome)) return outcome.outcome();
  }
  return v1::OUTCOME_UNSPECIFIED;
}

bool PlanView::NeedsRepush(int32_t fragment, int64_t seq) const {
  return std::any_of(plan.needs_repush().begin(), plan.needs_repush().end(),
                     [&](const v1::ContributionKey& key) {
                       return key.run_epoch() == run_epoch &&
                              key.fragment() == fragment &&
                              key.slot() == slot && key.seq() == seq;
                     });
}

bool PlanView::ShardAway() const {
  return std::any_of(plan.shards().begin(), plan.shards().end(),
                     [](const v1::ShardPlacement& shard) {
                       return shard.address().empty();
                     });
}

bool PlanView::Ended(int32_t fragment) const {
  const int64_t round_count = spec.schedule().round_count();
  if (round_count > 0 && CutVersion(fragment) >= round_count) return true;
  return std::find(plan.ended_fragments().begin(), plan.ended_fragments().end(),
                   fragment) != plan.ended_fragments().end();
}

bool PlanView::AllEnded() const {
  for (int32_t f = 0; f < plan.cut_size(); ++f) {
    if (!Ended(f)) return false;
  }
  return plan.cut_size() > 0;
}

}  // namespace atl::worker
