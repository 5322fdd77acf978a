#include "worker/engine/device/nccl_ranks.h"

#include "base/status/status_macros.h"
#include "worker/collective/nccl/nccl_library.h"
#include "worker/collective/nccl/nccl_world.h"

namespace atl::engine {

absl::StatusOr<std::unique_ptr<collective::Collective>> JoinNcclRanks(
    collective::Collective& control, cuda::CudaOps& ops) {
  RETURN_IF_ERROR(collective::CheckNccl());
  return collective::JoinNccl(
      control, {.device = ops.device(), .compute_stream = ops.stream()});
}

}  // namespace atl::engine
