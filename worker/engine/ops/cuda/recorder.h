// Records sequences of calls as CUDA graphs and replays each with one launch
// instead of one per kernel. Thread-compatible.
//
// Sequences that cannot be recorded (plan/replay_policy.h) are called instead;
// TakeNote says why.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "worker/engine/ops/cuda/device_memory.h"
#include "worker/engine/ops/cuda/error_latch.h"
#include "worker/engine/ops/cuda/plan/replay_policy.h"
#include "worker/engine/ops/cuda/runtime.h"

namespace atl::engine::cuda {

class Recorder {
 public:
  // The arguments outlive the recorder. Callers make the device current.
  Recorder(cudaStream_t stream, const DeviceMemory& memory, ErrorLatch& latch)
      : stream_(stream), memory_(memory), latch_(latch) {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  // No launched graph may be running.
  ~Recorder();

  void Run(int64_t key, absl::FunctionRef<void()> queue);

  int64_t replay_count() const { return replay_count_; }
  std::string TakeNote() { return std::exchange(note_, ""); }

 private:
  // Returns whether there is a graph now; if not, note_ says why.
  bool Record(int64_t key, absl::FunctionRef<void()> queue);
  void Launch(int64_t key);

  const cudaStream_t stream_;
  const DeviceMemory& memory_;
  ErrorLatch& latch_;
  ReplayPolicy policy_;
  std::map<int64_t, cudaGraphExec_t> graphs_;
  int64_t replay_count_ = 0;
  std::string note_;
};

}  // namespace atl::engine::cuda
