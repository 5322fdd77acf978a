#include "absl/status/status.h"
#include "worker/engine/device/nccl_ranks.h"

namespace atl::engine {

absl::StatusOr<std::unique_ptr<collective::Collective>> JoinNcclRanks(
    collective::Collective&, cuda::CudaOps&) {
  return absl::FailedPreconditionError(
      "this program was built without NCCL, over which ranks on CUDA devices "
      "talk: build it where nccl.h and libnccl.so are, or train with one rank");
}

}  // namespace atl::engine
