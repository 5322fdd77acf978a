#include "coordinator/core/rounds/data_leases.h"

namespace atl::coordinator {

std::optional<int32_t> ChooseDataShard(int32_t slot, int32_t previous,
                                       const std::set<int32_t>& leased,
                                       int32_t data_shard_count) {
  if (previous >= 0 && previous < data_shard_count &&
      !leased.contains(previous)) {
    return previous;
  }
  const int32_t own = slot % data_shard_count;
  if (!leased.contains(own)) return own;
  int32_t lowest = 0;
  for (int32_t shard : leased) {
    if (shard != lowest) break;
    ++lowest;
  }
  if (lowest >= data_shard_count) return std::nullopt;
  return lowest;
}

std::vector<std::vector<int32_t>> DealDataShards(
    const std::vector<int32_t>& primary, const std::set<int32_t>& leased,
    int32_t data_shard_count, bool adopt_free) {
  std::vector<std::vector<int32_t>> dealt;
  dealt.reserve(primary.size());
  for (int32_t shard : primary) dealt.push_back({shard});
  if (!adopt_free || dealt.empty()) return dealt;
  size_t next = 0;
  for (int32_t shard = 0; shard < data_shard_count; ++shard) {
    if (leased.contains(shard)) continue;
    dealt[next++ % dealt.size()].push_back(shard);
  }
  return dealt;
}

}  // namespace atl::coordinator
