#include "coordinator/core/outputs/island_warning.h"

#include <optional>

#include "absl/strings/str_cat.h"

namespace atl::coordinator {

std::string WarnOfIsland(const RunState& state, const Observations& observed,
                         int32_t slot) {
  const std::optional<int32_t> other =
      observed.sample_readers.FindOther(slot);
  if (!other.has_value()) return "";
  const storage::v1::MemberSet& theirs = state.members()[*other].record;
  const int32_t mine = state.members()[slot].record.data_shard();
  return absl::StrCat(
      "it chooses the same sample numbers as island ", theirs.island_id(),
      "; their data shards are ", mine, " and ", theirs.data_shard(), " of ",
      state.spec().data().data_shard_count(), ": if both read one data set, ",
      mine == theirs.data_shard()
          ? "a run with as many data shards as islands gives each its own"
          : "split the samples by the data shard, as atoll.ShardSampler does");
}

}  // namespace atl::coordinator
