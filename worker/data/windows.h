// The order of the windows of a data shard, or of one of its files.
//
// Pure. Immutable, so thread-safe. worker/data/DESIGN.md, Windows, defines it.
//
//   T  tokens a sequence; a window is T + 1 tokens
//   n  tokens of the data shard, or of the file, n >= T + 1
//   P  windows an epoch, max(1, floor((n - 1) / T) - 1)

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace atl::worker {

// SplitMix64's finaliser, twice, over seed + (counter + 1) * golden ratio.
uint64_t CounterHash(uint64_t seed, uint64_t counter);

// A permutation of [0, size): a Feistel network with cycle walking.
class Permutation {
 public:
  // Requires: 1 <= size <= 2^62.
  Permutation(uint64_t key, uint64_t size);
  // Requires: rank < size.
  uint64_t operator()(uint64_t rank) const;

 private:
  static constexpr int kRounds = 6;
  uint64_t Once(uint64_t value) const;

  uint64_t size_;
  int half_bits_;
  uint64_t round_keys_[kRounds];
};

class WindowOrder {
 public:
  // INVALID_ARGUMENT: there are too few tokens for one window.
  // `key` is the data shard's number, or the file's in its manifest.
  static absl::StatusOr<WindowOrder> Create(uint64_t seed, int32_t key,
                                            int64_t token_count,
                                            int64_t sequence_length);

  // Returns P.
  int64_t windows_per_epoch() const { return windows_per_epoch_; }
  // Offset in the n tokens of the first token of the window at `position` (>=
  // 0); the window ends within them.
  int64_t Offset(int64_t position) const;

 private:
  WindowOrder() = default;

  uint64_t seed_ = 0;
  int64_t sequence_length_ = 0;
  int64_t windows_per_epoch_ = 0;
  int64_t phase_count_ = 0;
};

struct TokenRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Tokens whose windows are permuted by themselves.
struct WindowGroup {
  int32_t key = 0;    // With the seed it decides the order.
  TokenRange tokens;  // In the data set.
  std::string name;   // In messages.
};

// The order of the windows of groups that are read one after another: an epoch
// has all windows of the first group, then those of the second, and so on.
class ShardOrder {
 public:
  // `groups` is not empty. INVALID_ARGUMENT: a group is too short for one
  // window; the message has its name.
  static absl::StatusOr<ShardOrder> Create(
      uint64_t seed, const std::vector<WindowGroup>& groups,
      int64_t sequence_length);

  int64_t windows_per_epoch() const { return windows_per_epoch_; }
  // Offset in the data set of the first token of the window at `position` (>=
  // 0); the window ends within its group.
  int64_t Offset(int64_t position) const;

 private:
  struct Group {
    int64_t first_rank;  // Windows of an epoch before it.
    int64_t begin;       // In the data set.
    WindowOrder order;
  };

  std::vector<Group> groups_;
  int64_t windows_per_epoch_ = 0;
};

// Offsets of the held-out windows of an evaluation: `window_count` evenly
// spread windows, or all if there are fewer.
std::vector<int64_t> EvaluationOffsets(int64_t token_count,
                                       int64_t sequence_length,
                                       int64_t window_count);

}  // namespace atl::worker
