// Queries of an island's newest plan. Pure. Refers to the plan, which must
// outlive it. Thread-compatible.

#pragma once

#include <cstdint>
#include <vector>

#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

// Newest committed version of `fragment` in `plan`; -1 if none.
int64_t CutVersion(const v1::IslandPlan& plan, int32_t fragment);

// Outcome of the contribution `key` in `plan`; nullptr if none.
const v1::ContributionOutcome* FindOutcome(const v1::IslandPlan& plan,
                                           const v1::ContributionKey& key);

struct PlanView {
  const v1::RunSpec& spec;
  const v1::IslandPlan& plan;
  // From the JoinResponse, outside its plan.
  const std::vector<v1::ContributionOutcome>& join_outcomes;
  int32_t slot;
  int64_t run_epoch;

  int64_t CutVersion(int32_t fragment) const {
    return worker::CutVersion(plan, fragment);
  }
  int64_t CutCommitSeq() const;
  // nullptr if that round is not open.
  const v1::OpenRound* FindOpen(int32_t fragment, int64_t version) const;
  // This island's part in a round; nullptr if it is not expected.
  const v1::SlotPlan* FindSlot(const v1::OpenRound& open) const;
  // Place among the expected islands, in slot order; -1 if not expected.
  int32_t SlotIndex(const v1::OpenRound& open) const {
    return FindSlot(open) == nullptr ? -1 : open.slot_index();
  }
  // Outcome of this island's contribution; UNSPECIFIED: not decided yet.
  v1::Outcome FindOutcome(int32_t fragment, int64_t seq) const;
  // True if the contribution with this anchor needs nothing more from us.
  bool IsDecided(int32_t fragment, int64_t anchor_version, int64_t seq) const {
    return CutVersion(fragment) > anchor_version ||
           FindOutcome(fragment, seq) != v1::OUTCOME_UNSPECIFIED;
  }
  // True if the plan says that a shard lost it.
  bool NeedsRepush(int32_t fragment, int64_t seq) const;
  bool ShardAway() const;
  // True if the newest version of `fragment` is its last. With a token budget
  // the plan says so; otherwise the island counts rounds.
  bool Ended(int32_t fragment) const;
  bool AllEnded() const;
};

}  // namespace atl::worker
