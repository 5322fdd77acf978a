// A cuDNN execution plan for a graph: the kernel and its scratch size.
//
// It is for the device of a handle. A plan for a described device, which need
// not exist, cannot run. Thread-compatible.

#pragma once

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

// Set exactly one.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  // cuDNN's JSON description of a device.
  absl::string_view properties = {};
};

class CudnnPlan {
 public:
  // Takes the first kernel offered that compiles, in a fraction of a second.
  //
  // NOT_FOUND: no offered kernel compiles. UNAVAILABLE: cuDNN failed; the
  // message says where.
  static absl::StatusOr<CudnnPlan> Make(const CudnnApi& api,
                                        const AttentionGraph& graph,
                                        const CudnnTarget& target);

  int64_t scratch_bytes() const { return scratch_bytes_; }

  // Queues the graph on the stream of `handle`, for which the plan was made.
  // `memory_of` returns the memory of a role's tensor, aligned to 16 bytes.
  //
  // UNAVAILABLE: cuDNN or the device failed.
  absl::Status Run(cudnnHandle_t handle,
                   absl::FunctionRef<void*(GraphRole)> memory_of,
                   void* scratch) const;

 private:
  // A tensor that the caller supplies, or a scalar.
  struct Argument {
    int64_t id = 0;
    GraphRole role = GraphRole::kScalar;
    float value = 0;
  };

  explicit CudnnPlan(const CudnnApi& api) : api_(&api) {}

  const CudnnApi* api_;
  std::vector<CudnnDescriptor> parts_;  // The plan is the last.
  std::vector<Argument> arguments_;
  int64_t scratch_bytes_ = 0;
};

}  // namespace atl::engine::cuda
