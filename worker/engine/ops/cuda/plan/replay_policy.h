// Decides when to call, record or replay a sequence of calls with a key. Pure.
//
// The first run is called and takes its memory, the second is recorded, later
// ones are replayed. Any change of memory makes a recording invalid; the
// sequence is then recorded again. A recording fails if it cannot be made or is
// invalid before its first replay. After kFailureCountMax failures a sequence
// is only called.

#pragma once

#include <cstdint>
#include <map>

namespace atl::engine::cuda {

enum class ReplayAction { kCall, kRecord, kReplay };

class ReplayPolicy {
 public:
  // Sequences that may be recorded; others are called.
  static constexpr int kKeyCountMax = 8;
  static constexpr int kFailureCountMax = 3;

  // `memory_changes` counts since the start. The caller reports how kRecord
  // ended.
  ReplayAction Next(int64_t key, int64_t memory_changes);
  void Recorded(int64_t key, int64_t memory_changes);
  // Returns whether that was the last attempt.
  bool Failed(int64_t key);

 private:
  struct Run {
    bool is_recorded = false;
    int64_t memory_changes = 0;  // When it was recorded.
    bool was_replayed = false;   // Since it was recorded.
    int failure_count = 0;
  };
  std::map<int64_t, Run> runs_;
};

}  // namespace atl::engine::cuda
