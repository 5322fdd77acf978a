// For builds without cuDNN.

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/ops/cuda/cudnn_attention.h"

namespace atl::engine::cuda {

absl::StatusOr<std::unique_ptr<FusedAttention>> MakeCudnnAttention() {
  return absl::UnavailableError("this was built without cuDNN");
}

}  // namespace atl::engine::cuda
