// Judges contributions by what the shards have of them. Pure. Thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "atoll/v1/plan.pb.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// Limit of a refusal's reason: records, snapshots and history keep it forever.
inline constexpr size_t kReasonBytesMax = 256;

// The greatest seq that shards accept from islands.
inline constexpr int64_t kSeqMax = int64_t{1} << 53;
// Seqs after its next_seq that a life of an island may use. A greater one is
// refused and moves no next_seq: else a single kSeqMax would use up all seqs.
inline constexpr int64_t kSeqsALifeMax = int64_t{1} << 40;

// True if a contribution of the run may have `key`, and the key has not ended.
bool IsUndecided(const RunState& state, const v1::ContributionKey& key);

// Judges a contribution by its parts. nullopt: no shard of `holders` that has
// reported names it, or has had it. `holders`: ListShards of its fragment.
// Requires: IsUndecided of its key.
std::optional<SeenContribution> JudgeContribution(
    const RunState& state, const std::vector<ObservedShard>& shards,
    const std::vector<int32_t>& holders, const KnownContribution& known);

// Returns why a header is invalid for the run; empty if it is valid. Requires:
// IsUndecided of its key.
std::string FindInfoFault(const RunState& state,
                          const v1::ContributionInfo& info);

// Counts the steps of a contribution that every shard has stored, and refuses it
// if its norm is above an enrolled island's bound. Requires: `seen` has an info.
void JudgeNorm(const RunState& state, int32_t fragment, SeenContribution& seen);

// True if no field differs.
bool IsSameInfo(const v1::ContributionInfo& a, const v1::ContributionInfo& b);

// The reason of a refused contribution's outcome: why, its island, its round
// and that round's inner steps. `anchor_version` not set: the present round.
std::string ExplainRefusal(const RunState& state,
                           const v1::ContributionKey& key,
                           std::optional<int64_t> anchor_version,
                           const std::string& why);

// The greatest seq that `member`'s newest life may use.
int64_t FindSeqMax(const Member& member);

// The largest persisted_commit_seq that the shard has reported in this
// run_epoch, as far as the log and this process know.
int64_t AcknowledgedCommitSeq(const RunState& state,
                              const Observations& observed, int32_t shard);

// True if the shard has reported and has no fault.
inline bool IsHeard(const ObservedShard& shard) {
  return shard.reported && shard.report.fault().empty();
}

// Returns the entry of `seal`'s attempt in `reported`, the rounds that `shard`
// has prepared or has statistics of. Null if `reported` has no such entry, or
// if the shard is not heard: reports of a stopped shard do not count.
template <typename Rounds>
const typename Rounds::value_type* FindOfSeal(const ObservedShard& shard,
                                              const Rounds& reported,
                                              const v1::Seal& seal) {
  if (!IsHeard(shard)) return nullptr;
  for (const auto& round : reported) {
    if (round.fragment() == seal.fragment() &&
        round.version() == seal.version() &&
        round.attempt() == seal.attempt()) {
      return &round;
    }
  }
  return nullptr;
}

// The shards that have a part of `fragment`, and so in its rounds, in order.
std::vector<int32_t> ListShards(const RunState& state, int32_t fragment);

}  // namespace atl::coordinator
