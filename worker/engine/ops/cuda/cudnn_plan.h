// How cuDNN computes a graph: by which of its kernels, in how much memory.
//
// Made for the device of a handle, or from a description of one where there is
// none, and then it cannot be run. Thread-compatible.

#ifndef WORKER_ENGINE_OPS_CUDA_CUDNN_PLAN_H_
#define WORKER_ENGINE_OPS_CUDA_CUDNN_PLAN_H_

#include <cudnn.h>

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/engine/ops/cuda/cudnn_api.h"
#include "worker/engine/ops/cuda/plan/attention_graph.h"

namespace atl::engine::cuda {

// What a plan is for: one of both.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  // Of a device, as cuDNN writes them: JSON.
  absl::string_view properties = {};
};

class CudnnPlan {
 public:
  // The kernel that cuDNN names first, of those that it has. It compiles it: a
  // fraction of a second.
  //
  // NOT_FOUND: it has none. UNAVAILABLE: it failed. The message says at what.
  static absl::StatusOr<CudnnPlan> Make(const CudnnApi& api,
                                        const AttentionGraph& graph,
                                        const CudnnTarget& target);

  int64_t scratch_bytes() const { return scratch_bytes_; }

  // Queues it on the stream of the handle that it was made for. `memory_of`
  // says where tensors of a role lie, aligned to 16 bytes.
  //
  // UNAVAILABLE: cuDNN or the device failed.
  absl::Status Run(cudnnHandle_t handle,
                   absl::FunctionRef<void*(GraphRole)> memory_of,
                   void* scratch) const;

 private:
  // A tensor that is not within the graph.
  struct Argument {
    int64_t id = 0;
    GraphRole role = GraphRole::kScalar;
    float value = 0;
  };

  explicit CudnnPlan(const CudnnApi& api) : api_(&api) {}

  const CudnnApi* api_;
  std::vector<CudnnDescriptor> parts_;  // The last is the plan.
  std::vector<Argument> arguments_;
  int64_t scratch_bytes_ = 0;
};

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_CUDNN_PLAN_H_
