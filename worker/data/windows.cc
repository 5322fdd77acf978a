#include "worker/data/windows.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/codec/bits.h"
#include "base/status/annotate.h"

namespace atl::worker {
namespace {

// Keeps the hashes of a phase and of an order distinct.
enum Purpose : uint64_t { kPhase = 1, kOrder = 2 };

uint64_t EpochHash(uint64_t seed, Purpose purpose, int64_t epoch) {
  return CounterHash(CounterHash(seed, purpose), static_cast<uint64_t>(epoch));
}

}  // namespace

uint64_t CounterHash(uint64_t seed, uint64_t counter) {
  return codec::SplitMix64(
      codec::SplitMix64(seed + counter * codec::kSplitMixStep));
}

Permutation::Permutation(uint64_t key, uint64_t size) : size_(size) {
  half_bits_ = 1;
  while ((uint64_t{1} << (2 * half_bits_)) < size) ++half_bits_;
  for (int i = 0; i < kRounds; ++i) round_keys_[i] = CounterHash(key, i);
}

uint64_t Permutation::Once(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t key : round_keys_) {
    const uint64_t next = left ^ (CounterHash(key, right) & mask);
    left = right;
    right = next;
  }
  return (left << half_bits_) | right;
}

uint64_t Permutation::operator()(uint64_t rank) const {
  // The domain is less than 4 * size: a few iterations on average.
  uint64_t value = Once(rank);
  while (value >= size_) value = Once(value);
  return value;
}

absl::StatusOr<WindowOrder> WindowOrder::Create(uint64_t seed, int32_t key,
                                                int64_t token_count,
                                                int64_t sequence_length) {
  if (sequence_length < 1) {
    return absl::InvalidArgumentError("sequence_length must be at least 1");
  }
  if (token_count < sequence_length + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "there are ", token_count, " tokens, but one window takes ",
        sequence_length + 1,
        ": give more data, or use fewer data shards or shorter sequences"));
  }
  WindowOrder order;
  order.seed_ = CounterHash(seed, static_cast<uint64_t>(key));
  order.sequence_length_ = sequence_length;
  const int64_t window_count = (token_count - 1) / sequence_length;
  order.windows_per_epoch_ = std::max<int64_t>(1, window_count - 1);
  order.phase_count_ =
      window_count > 1 ? sequence_length : token_count - sequence_length;
  return order;
}

int64_t WindowOrder::Offset(int64_t position) const {
  const int64_t epoch = position / windows_per_epoch_;
  const int64_t rank = position % windows_per_epoch_;
  const Permutation permutation(EpochHash(seed_, kOrder, epoch),
                                windows_per_epoch_);
  const int64_t phase = static_cast<int64_t>(
      EpochHash(seed_, kPhase, epoch) % static_cast<uint64_t>(phase_count_));
  return phase + static_cast<int64_t>(permutation(rank)) * sequence_length_;
}

absl::StatusOr<ShardOrder> ShardOrder::Create(
    uint64_t seed, const std::vector<WindowGroup>& groups,
    int64_t sequence_length) {
  ShardOrder shard;
  for (const WindowGroup& group : groups) {
    absl::StatusOr<WindowOrder> order = WindowOrder::Create(
        seed, group.key, group.tokens.size(), sequence_length);
    if (!order.ok()) return Annotate(order.status(), group.name);
    shard.groups_.push_back(
        {shard.windows_per_epoch_, group.tokens.begin, *order});
    shard.windows_per_epoch_ += order->windows_per_epoch();
  }
  return shard;
}

int64_t ShardOrder::Offset(int64_t position) const {
  const int64_t epoch = position / windows_per_epoch_;
  const int64_t rank = position % windows_per_epoch_;
  const Group& group = *(std::upper_bound(groups_.begin(), groups_.end(), rank,
                                          [](int64_t value, const Group& g) {
                                            return value < g.first_rank;
                                          }) -
                         1);
  return group.begin +
         group.order.Offset(epoch * group.order.windows_per_epoch() + rank -
                            group.first_rank);
}

std::vector<int64_t> EvaluationOffsets(int64_t token_count,
                                       int64_t sequence_length,
                                       int64_t window_count) {
  std::vector<int64_t> offsets;
  if (token_count < sequence_length + 1 || sequence_length < 1) return offsets;
  const int64_t all = (token_count - 1) / sequence_length;
  const int64_t count = std::min(all, window_count);
  for (int64_t i = 0; i < count; ++i) {
    // i * all overflows 64 bits past about 2^31 windows.
    const int64_t window =
        static_cast<int64_t>(static_cast<__int128>(i) * all / count);
    offsets.push_back(window * sequence_length);
  }
  return offsets;
}

}  // namespace atl::worker
