#include "absl/status/status.h"
#include "worker/engine/device/nccl_ranks.h"

namespace atl::engine {

absl::StatusOr<std::unique_ptr<collective::Collective>> JoinNcclRanks(
    collective::Collective&, cuda::CudaOps&) {
  return absl::FailedPreconditionError(
      "this program was built without NCCL, which ranks on CUDA devices need: "
      "build it on a machine with nccl.h and libnccl.so, or train with one "
      "rank");
}

}  // namespace atl::engine
