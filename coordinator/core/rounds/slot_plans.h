// Parts of an OPEN: which of the ready islands a round asks, how many inner
// steps each takes, and which data shards each reads.
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

// --- Client sampling ---------------------------------------------------------

// The `count` slots of `slots` (sorted) with the smallest keys. A key is a
// 64-bit hash of (seed, version, attempt, slot). The result is sorted and
// depends on nothing else; every set of `count` slots is equally likely.
// Returns all of `slots` if there are at most `count`.
std::vector<int32_t> SampleSlots(const std::vector<int32_t>& slots,
                                 int64_t count, uint64_t seed, int64_t version,
                                 int64_t attempt);

// --- Steps -------------------------------------------------------------------

// Steps of each island in a round of `inner_step_count` (H) steps that all
// islands end together: v_w / v_ref * H to the nearest, in [1, H]. `speeds` has
// v_w / v_ref of each island (measured_speeds.h). Rounding to the nearest gives
// islands of similar speed the same count; an island waits for at most half a
// step of another.
std::vector<int64_t> ElasticSteps(const std::vector<double>& speeds,
                                  int64_t inner_step_count);

// The same for rounds in which no island waits for another, rounded down:
// max(1, floor(v_w / v_ref * H)). This is DyLU (arXiv 2401.09135, section 4),
// except for v_ref: the paper divides by the largest speed. One island cannot
// raise the median, and islands above it take H steps as well.
std::vector<int64_t> DyluSteps(const std::vector<double>& speeds,
                               int64_t inner_step_count);

// --- Data shards -------------------------------------------------------------

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
