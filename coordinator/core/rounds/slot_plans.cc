#include "coordinator/core/rounds/slot_plans.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/codec/bits.h"

namespace atl::coordinator {
namespace {

// round(share * H), in [1, H].
template <typename Round>
std::vector<int64_t> StepsBySpeed(const std::vector<double>& speeds,
                                  int64_t inner_step_count, Round round) {
  const auto most = static_cast<double>(inner_step_count);
  std::vector<int64_t> steps;
  steps.reserve(speeds.size());
  for (const double speed : speeds) {
    steps.push_back(static_cast<int64_t>(
        std::clamp(round(std::min(speed, 1.0) * most), 1.0, most)));
  }
  return steps;
}

}  // namespace

std::vector<int32_t> SampleSlots(const std::vector<int32_t>& slots,
                                 int64_t count, uint64_t seed, int64_t version,
                                 int64_t attempt) {
  if (static_cast<int64_t>(slots.size()) <= count) return slots;
  const uint64_t round =
      codec::SplitMix64(codec::SplitMix64(codec::SplitMix64(seed) ^
                                          static_cast<uint64_t>(version)) ^
                        static_cast<uint64_t>(attempt));
  std::vector<std::pair<uint64_t, int32_t>> keyed;
  keyed.reserve(slots.size());
  for (int32_t slot : slots) {
    keyed.emplace_back(codec::SplitMix64(round ^ static_cast<uint64_t>(slot)),
                       slot);
  }
  std::sort(keyed.begin(), keyed.end());
  std::vector<int32_t> sample;
  for (int64_t i = 0; i < count; ++i) sample.push_back(keyed[i].second);
  std::sort(sample.begin(), sample.end());
  return sample;
}

std::vector<int64_t> ElasticSteps(const std::vector<double>& speeds,
                                  int64_t inner_step_count) {
  return StepsBySpeed(speeds, inner_step_count,
                      [](double share) { return std::round(share); });
}

std::vector<int64_t> DyluSteps(const std::vector<double>& speeds,
                               int64_t inner_step_count) {
  return StepsBySpeed(speeds, inner_step_count,
                      [](double share) { return std::floor(share); });
}

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
