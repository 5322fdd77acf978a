// Runs of calls that are recorded as CUDA graphs and replayed: one launch in
// place of one a kernel.
//
// A run that cannot be recorded (replay_policy.h) is called as it is, and a
// sentence says so. Thread-compatible.

#ifndef WORKER_ENGINE_OPS_CUDA_RECORDER_H_
#define WORKER_ENGINE_OPS_CUDA_RECORDER_H_

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
  // All outlive it; the device is the current one in each call.
  Recorder(cudaStream_t stream, const DeviceMemory& memory, ErrorLatch& latch)
      : stream_(stream), memory_(memory), latch_(latch) {}
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  // Nothing that it launched is still going on.
  ~Recorder();

  // As BasicOps::Replay. An error of the device is the latch's.
  void Run(int64_t key, absl::FunctionRef<void()> queue);

  int64_t replay_count() const { return replay_count_; }
  // As BasicOps::TakeNote.
  std::string TakeNote() { return std::exchange(note_, ""); }

 private:
  // Records, and says whether there is a graph now.
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

#endif  // WORKER_ENGINE_OPS_CUDA_RECORDER_H_
