// What the shards' reports say of contributions that are not decided.
//
// Pure. Thread-safe.

#ifndef COORDINATOR_CORE_ROUNDS_CONTRIBUTIONS_H_
#define COORDINATOR_CORE_ROUNDS_CONTRIBUTIONS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "atoll/v1/plan.pb.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// Of a reason why a contribution is refused, what is taken: it is in records,
// snapshots and the history for good.
inline constexpr size_t kReasonBytesMax = 256;

// The greatest seq that shards take from islands.
inline constexpr int64_t kSeqMax = int64_t{1} << 53;
// How far beyond the next_seq of its Join a life of an island gets: what claims
// more is refused, and moves nobody's next_seq, or an island that has used
// kSeqMax once could have no seq any more.
inline constexpr int64_t kSeqsALifeMax = int64_t{1} << 40;

// One contribution as far as it is known.
struct SeenContribution {
  v1::ContributionKey key;
  // What was pushed; not set if it is only known to be refused.
  std::optional<v1::ContributionInfo> info;
  // Of its header; not set if who refused it does not know it any more.
  std::optional<int64_t> anchor_version;
  int stored_count = 0;     // Shards that have it whole.
  double norm_squared = 0;  // Over those shards.
  std::string refusal;      // Why it is refused; empty if it is not.
  bool received = false;    // Stored on all shards, refused by none.
};

// By (slot, seq): the order in which contributions are merged.
using SeenContributions =
    std::map<std::pair<int32_t, int64_t>, SeenContribution>;

// True if `key` is one that a contribution of the run may have, and none with
// it has ended.
bool IsUndecided(const RunState& state, const v1::ContributionKey& key);

// The undecided contributions of `fragment` that the reports name, or named and
// a shard has lost. One is also
// refused if shards name it with different headers, or if its header makes no
// sense for the run. Those of another run_epoch, of an unknown slot or of a seq
// that no shard takes are left out.
SeenContributions CollectContributions(const RunState& state,
                                       const std::vector<ObservedShard>& shards,
                                       int32_t fragment);

// The greatest seq that counts as one of `member`'s newest life.
int64_t FindSeqMax(const Member& member);

// Shards with a non-empty range of `fragment`, in order: those that take part
// in its rounds.
std::vector<int32_t> ListShards(const RunState& state, int32_t fragment);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_ROUNDS_CONTRIBUTIONS_H_
