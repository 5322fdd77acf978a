#include "worker/engine/parallel/flat_shard.h"

#include <algorithm>
#include <cstring>

#include "base/status/check.h"

namespace atl::engine {

absl::StatusOr<FlatShards> FlatShards::Create(
    const std::vector<int64_t>& unit_counts, int group_size) {
  if (group_size < 1 || unit_counts.empty()) {
    return absl::InvalidArgumentError("shards need a rank and a unit");
  }
  FlatShards shards;
  shards.group_size_ = group_size;
  for (int64_t count : unit_counts) {
    if (count < 1) {
      return absl::InvalidArgumentError("a unit without elements");
    }
    Unit unit;
    unit.begin = shards.element_count_;
    unit.element_count = count;
    const int64_t share = (count + group_size - 1) / group_size;
    unit.shard_count =
        (share + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
    unit.shard_begin = shards.kept_count_;
    shards.element_count_ += count;
    shards.kept_count_ += unit.shard_count;
    shards.shard_count_max_ =
        std::max(shards.shard_count_max_, unit.shard_count);
    shards.units_.push_back(unit);
  }
  return shards;
}

ElementRange FlatShards::OwnedOf(int unit, int rank) const {
  const Unit& u = units_[unit];
  const int64_t begin = std::min(u.element_count, rank * u.shard_count);
  const int64_t end = std::min(u.element_count, begin + u.shard_count);
  return {u.begin + begin, u.begin + end};
}

std::vector<ElementRange> FlatShards::Owned(int rank) const {
  std::vector<ElementRange> ranges;
  for (int unit = 0; unit < static_cast<int>(units_.size()); ++unit) {
    const ElementRange range = OwnedOf(unit, rank);
    if (range.size() == 0) continue;
    if (!ranges.empty() && ranges.back().end == range.begin) {
      ranges.back().end = range.end;
    } else {
      ranges.push_back(range);
    }
  }
  return ranges;
}

FlatShards::Place FlatShards::PlaceOf(int64_t element) const {
  CHECK(element >= 0 && element < element_count_);
  const auto after = std::upper_bound(
      units_.begin(), units_.end(), element,
      [](int64_t at, const Unit& unit) { return at < unit.begin; });
  const Unit& unit = *std::prev(after);
  const int64_t within = element - unit.begin;
  return {static_cast<int>(within / unit.shard_count),
          unit.shard_begin + within % unit.shard_count};
}

void FlatShards::Keep(int rank, absl::Span<const float> model,
                      absl::Span<float> kept) const {
  CHECK_EQ(static_cast<int64_t>(model.size()), element_count_);
  CHECK_EQ(static_cast<int64_t>(kept.size()), kept_count_);
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    const ElementRange range = OwnedOf(u, rank);
    float* const shard = kept.data() + units_[u].shard_begin;
    std::copy(model.begin() + range.begin, model.begin() + range.end, shard);
    std::fill(shard + range.size(), shard + units_[u].shard_count, 0.0f);
  }
}

void FlatShards::Restore(int rank, absl::Span<const float> kept,
                         absl::Span<float> model) const {
  CHECK_EQ(static_cast<int64_t>(model.size()), element_count_);
  CHECK_EQ(static_cast<int64_t>(kept.size()), kept_count_);
  for (int u = 0; u < static_cast<int>(units_.size()); ++u) {
    const ElementRange range = OwnedOf(u, rank);
    const float* const shard = kept.data() + units_[u].shard_begin;
    std::copy(shard, shard + range.size(), model.begin() + range.begin);
  }
}

absl::StatusOr<std::vector<GradientBucket>> MakeGradientBuckets(
    const std::vector<int64_t>& parameter_counts, int64_t bucket_count_max) {
  if (bucket_count_max < 1) {
    return absl::InvalidArgumentError("a bucket without elements");
  }
  int64_t begin = 0;
  for (int64_t count : parameter_counts) {
    if (count < 1) {
      return absl::InvalidArgumentError("a parameter without elements");
    }
    begin += count;
  }
  std::vector<GradientBucket> buckets;
  for (int p = static_cast<int>(parameter_counts.size()) - 1; p >= 0; --p) {
    const int64_t count = parameter_counts[p];
    if (buckets.empty() ||
        buckets.back().elements.size() + count > bucket_count_max) {
      buckets.push_back({{begin, begin}, p, 0});
    }
    begin -= count;
    buckets.back().elements.begin = begin;
    buckets.back().first_parameter = p;
    ++buckets.back().parameter_count;
  }
  return buckets;
}

}  // namespace atl::engine
