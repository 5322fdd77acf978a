#include "worker/engine/ops/cuda/plan/replay_policy.h"

namespace atl::engine::cuda {

ReplayAction ReplayPolicy::Next(int64_t key, int64_t memory_changes) {
  const auto found = runs_.find(key);
  if (found == runs_.end()) {
    if (runs_.size() < kKeyCountMax) runs_.emplace(key, Run());
    return ReplayAction::kCall;
  }
  Run& run = found->second;
  if (run.is_recorded && run.memory_changes == memory_changes) {
    run.was_replayed = true;
    return ReplayAction::kReplay;
  }
  if (run.is_recorded) {
    run.is_recorded = false;
    if (!run.was_replayed) ++run.failure_count;
  }
  return run.failure_count < kFailureCountMax ? ReplayAction::kRecord
                                              : ReplayAction::kCall;
}

void ReplayPolicy::Recorded(int64_t key, int64_t memory_changes) {
  Run& run = runs_[key];
  run.is_recorded = true;
  run.memory_changes = memory_changes;
  run.was_replayed = false;
}

bool ReplayPolicy::Failed(int64_t key) {
  return ++runs_[key].failure_count >= kFailureCountMax;
}

}  // namespace atl::engine::cuda
