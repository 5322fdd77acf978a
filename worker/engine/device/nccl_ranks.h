// Devices::JoinWorld for CUDA devices. The build links one of:
//
//   nccl_ranks.cc     where NCCL is found
//   no_nccl_ranks.cc  otherwise; returns an error

#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "worker/collective/collective.h"
#include "worker/engine/ops/cuda/cuda_ops.h"

namespace atl::engine {

absl::StatusOr<std::unique_ptr<collective::Collective>> JoinNcclRanks(
    collective::Collective& control, cuda::CudaOps& ops);

}  // namespace atl::engine
