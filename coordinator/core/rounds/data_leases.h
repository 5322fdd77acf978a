// Which island reads which data shard.
//
// A member that is joining or ready leases one data shard, alone, if the data
// is shared (its fingerprint is set). In elastic runs the shards that nobody
// leases, those of lost islands for one, are read too: each island of a round
// takes its own and its part of the free ones in turn, by version. Local data
// (no fingerprint) is everyone's own: shards are numbers, slot modulo count.
//
// Pure. Thread-safe.

#ifndef COORDINATOR_CORE_ROUNDS_DATA_LEASES_H_
#define COORDINATOR_CORE_ROUNDS_DATA_LEASES_H_

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

namespace atl::coordinator {

// The shard for a member with `slot`: `previous` (-1: none) if it is free, else
// slot modulo count if it is free, else the lowest free one; nullopt if none
// is.
std::optional<int32_t> ChooseDataShard(int32_t slot, int32_t previous,
                                       const std::set<int32_t>& leased,
                                       int32_t data_shard_count);

// The shards that each of `slots` reads, its own first: `primary` has one for
// each slot, `leased` all leased ones. With `adopt_free`, free shards are dealt
// out in order, one a slot and round again.
std::vector<std::vector<int32_t>> DealDataShards(
    const std::vector<int32_t>& primary, const std::set<int32_t>& leased,
    int32_t data_shard_count, bool adopt_free);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_ROUNDS_DATA_LEASES_H_
