// When a run of calls is made, recorded, and replayed.
//
// Pure. A run is known by a key. It is made once as it is, so that what it
// needs for the first time is there; recorded the next time; and replayed from
// then on, as long as no memory has been taken or given back: else addresses in
// the record may mean something else, and it is recorded anew. A run that
// cannot be recorded, or whose records grow stale before they are replayed, is
// made as it is for good after some tries.

#ifndef WORKER_ENGINE_OPS_CUDA_PLAN_REPLAY_POLICY_H_
#define WORKER_ENGINE_OPS_CUDA_PLAN_REPLAY_POLICY_H_

#include <cstdint>
#include <map>

namespace atl::engine::cuda {

enum class ReplayAction { kCall, kRecord, kReplay };

class ReplayPolicy {
 public:
  // Keys that are recorded; further ones are called.
  static constexpr int kKeyCountMax = 8;
  static constexpr int kFailureCountMax = 3;

  // What to do with the run of `key`, `memory_changes` changes of memory after
  // the start. The caller does it, and says of kRecord how it ended.
  ReplayAction Next(int64_t key, int64_t memory_changes);
  void Recorded(int64_t key, int64_t memory_changes);
  // Returns whether that was the last try.
  bool Failed(int64_t key);

 private:
  struct Run {
    bool is_recorded = false;
    int64_t memory_changes = 0;  // When it was recorded.
    bool was_replayed = false;   // Since then.
    int failure_count = 0;
  };
  std::map<int64_t, Run> runs_;
};

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_PLAN_REPLAY_POLICY_H_
