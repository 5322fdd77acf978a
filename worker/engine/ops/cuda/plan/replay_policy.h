// When to call, record or replay a sequence of calls.
//
// Pure. A sequence has a key. Its first run is a plain call, which allocates
// what it needs; the second is recorded; later ones replay the recording. Any
// change of memory makes the recording's addresses invalid, and it is recorded
// again. After kFailureCountMax failures a sequence is only called. A failure
// is a recording that fails, or one that becomes invalid before its first
// replay.

#ifndef WORKER_ENGINE_OPS_CUDA_PLAN_REPLAY_POLICY_H_
#define WORKER_ENGINE_OPS_CUDA_PLAN_REPLAY_POLICY_H_

#include <cstdint>
#include <map>

namespace atl::engine::cuda {

enum class ReplayAction { kCall, kRecord, kReplay };

class ReplayPolicy {
 public:
  // How many keys may be recorded; others are only called.
  static constexpr int kKeyCountMax = 8;
  static constexpr int kFailureCountMax = 3;

  // What to do with the sequence `key` after `memory_changes` changes of
  // memory. The caller must do it and report how kRecord ended.
  ReplayAction Next(int64_t key, int64_t memory_changes);
  void Recorded(int64_t key, int64_t memory_changes);
  // Returns whether no further attempt will follow.
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

#endif  // WORKER_ENGINE_OPS_CUDA_PLAN_REPLAY_POLICY_H_
