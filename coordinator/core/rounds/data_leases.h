// Decides which island reads which data shard.
//
// If the data is shared (its fingerprint is set), each joining or ready member
// leases one data shard alone. Elastic runs also read the free shards, for
// example those of lost islands: each island of a round takes its own shard and
// its part of the free ones in turn, by version. Local data (no fingerprint)
// belongs to its island: the shard is only a number, slot modulo count.
//
// Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace atl::coordinator {

// The shard for a member with `slot`, the first that is free of: `previous`
// (-1: none), slot modulo count, the lowest free one. nullopt if none is free.
std::optional<int32_t> ChooseDataShard(int32_t slot, int32_t previous,
                                       const std::set<int32_t>& leased,
                                       int32_t data_shard_count);

// The shards that each island reads, its own first. `primary` has one shard for
// each island; `leased` has all leased shards. With `adopt_free`, free shards
// are dealt in order, one to each island and round again.
std::vector<std::vector<int32_t>> DealDataShards(
    const std::vector<int32_t>& primary, const std::set<int32_t>& leased,
    int32_t data_shard_count, bool adopt_free);

}  // namespace atl::coordinator
