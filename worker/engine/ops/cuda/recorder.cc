#include "worker/engine/ops/cuda/recorder.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace atl::engine::cuda {

Recorder::~Recorder() {
  for (const auto& [key, graph] : graphs_) (void)cudaGraphExecDestroy(graph);
}

void Recorder::Run(int64_t key, absl::FunctionRef<void()> queue) {
  switch (policy_.Next(key, memory_.change_count())) {
    case ReplayAction::kCall:
      queue();
      return;
    case ReplayAction::kRecord:
      if (Record(key, queue)) {
        policy_.Recorded(key, memory_.change_count());
        Launch(key);
        return;
      }
      if (policy_.Failed(key)) {
        absl::StrAppend(&note_, "; it is not tried again");
      }
      queue();
      return;
    case ReplayAction::kReplay:
      Launch(key);
      ++replay_count_;
      return;
  }
}

bool Recorder::Record(int64_t key, absl::FunctionRef<void()> queue) {
  const auto old = graphs_.find(key);
  if (old != graphs_.end()) {
    // The graph may still be running; the runtime keeps it until it ends.
    (void)cudaGraphExecDestroy(old->second);
    graphs_.erase(old);
  }
  // Other threads may call the runtime during the capture.
  cudaError_t error =
      cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal);
  cudaGraph_t graph = nullptr;
  absl::Status status;
  if (error == cudaSuccess) {
    queue();
    error = cudaStreamEndCapture(stream_, &graph);
    // The calls were recorded, not run; the caller repeats them.
    status = latch_.Forget();
  }
  cudaGraphExec_t made = nullptr;
  if (error == cudaSuccess && status.ok()) {
    error = cudaGraphInstantiate(&made, graph, 0);
  }
  if (graph != nullptr) (void)cudaGraphDestroy(graph);
  (void)cudaGetLastError();  // Clears it: `status` reports it.
  status.Update(ToStatus(error, "recording a step", latch_.device()));
  if (!status.ok()) {
    note_ = absl::StrCat("a step is not recorded as a CUDA graph: ",
                         status.message());
    return false;
  }
  graphs_[key] = made;
  return true;
}

void Recorder::Launch(int64_t key) {
  latch_.Check(cudaGraphLaunch(graphs_.at(key), stream_),
               "launching a recorded step");
  latch_.Check(cudaGetLastError(), "a recorded step");
}

}  // namespace atl::engine::cuda
