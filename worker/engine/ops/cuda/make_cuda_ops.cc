#include "worker/engine/ops/cuda/make_cuda_ops.h"

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "worker/engine/ops/cuda/cudnn_attention.h"
#include "worker/engine/ops/cuda/error_latch.h"
#include "worker/engine/ops/cuda/lt_matmul.h"

namespace atl::engine::cuda {

absl::StatusOr<int> DeviceCount() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return absl::UnavailableError(absl::StrCat(
        "no CUDA device can be used here: ", cudaGetErrorString(error)));
  }
  if (count == 0) {
    return absl::UnavailableError("this machine has no CUDA device");
  }
  return count;
}

absl::StatusOr<std::unique_ptr<CudaOps>> MakeCudaOps(
    int device, ComputeType compute, const CudaOptions& options) {
  RETURN_IF_ERROR(ToStatus(cudaSetDevice(device), "selecting it", device));
  ASSIGN_OR_RETURN(std::unique_ptr<Matmul> matmul, MakeLtMatmul(device));
  std::unique_ptr<FusedAttention> attention;
  if (compute == ComputeType::kBf16 && options.fused_attention) {
    // Without cuDNN our own kernels compute attention.
    auto made = MakeCudnnAttention();
    if (made.ok()) attention = *std::move(made);
  }
  return CudaOps::Create(device, compute, std::move(matmul), options,
                         std::move(attention));
}

}  // namespace atl::engine::cuda
