#include "coordinator/core/outputs/island_warning.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace atl::coordinator {
namespace {

// The digest of a present member's samples; empty: it is not present, or does
// not tell.
std::string IndexDigest(const Member& member, const ObservedMember& observed) {
  if (!member.present() || !observed.progress.has_value()) return "";
  return observed.progress->index_digest();
}

}  // namespace

std::string WarnOfIsland(const RunState& state, const Observations& observed,
                         int32_t slot) {
  const std::vector<Member>& members = state.members();
  const std::string digest =
      IndexDigest(members[slot], observed.members[slot]);
  if (digest.empty()) return "";
  for (size_t other = 0; other < members.size(); ++other) {
    if (static_cast<int32_t>(other) == slot ||
        IndexDigest(members[other], observed.members[other]) != digest) {
      continue;
    }
    const int32_t mine = members[slot].record.data_shard();
    const int32_t theirs = members[other].record.data_shard();
    return absl::StrCat(
        "it chooses the same sample numbers as island ",
        members[other].record.island_id(), "; their data shards are ", mine,
        " and ", theirs, " of ", state.spec().data().data_shard_count(),
        ": if both read one data set, ",
        mine == theirs
            ? "a run with as many data shards as islands gives each its own"
            : "split the samples by the data shard, as atoll.ShardSampler "
              "does");
  }
  return "";
}

}  // namespace atl::coordinator
