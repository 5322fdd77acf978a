#include "worker/core/plan_view.h"

#include <algorithm>

namespace atl::worker {
namespace {

bool IsSame(const v1::ContributionKey& a, const v1::ContributionKey& b) {
  return a.run_epoch() == b.run_epoch() && a.fragment() == b.fragment() &&
         a.slot() == b.slot() && a.seq() == b.seq();
}

template <typename Outcomes>
const v1::ContributionOutcome* FindIn(const Outcomes& outcomes,
                                      const v1::ContributionKey& key) {
  const auto found = std::find_if(
      outcomes.begin(), outcomes.end(),
      [&](const auto& outcome) { return IsSame(outcome.key(), key); });
  return found == outcomes.end() ? nullptr : &*found;
}

v1::ContributionKey MakeKey(const PlanView& view, int32_t fragment,
                            int64_t seq) {
  v1::ContributionKey key;
  key.set_run_epoch(view.run_epoch);
  key.set_fragment(fragment);
  key.set_slot(view.slot);
  key.set_seq(seq);
  return key;
}

}  // namespace

const v1::ContributionOutcome* FindOutcome(const v1::IslandPlan& plan,
                                           const v1::ContributionKey& key) {
  return FindIn(plan.outcomes(), key);
}

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
  const v1::ContributionKey key = MakeKey(*this, fragment, seq);
  const v1::ContributionOutcome* found = worker::FindOutcome(plan, key);
  if (found == nullptr) found = FindIn(join_outcomes, key);
  return found == nullptr ? v1::OUTCOME_UNSPECIFIED : found->outcome();
}

bool PlanView::NeedsRepush(int32_t fragment, int64_t seq) const {
  const v1::ContributionKey key = MakeKey(*this, fragment, seq);
  return std::any_of(
      plan.needs_repush().begin(), plan.needs_repush().end(),
      [&](const v1::ContributionKey& other) { return IsSame(other, key); });
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
