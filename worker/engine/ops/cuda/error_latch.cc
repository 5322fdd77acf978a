#include "worker/engine/ops/cuda/error_latch.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace atl::engine::cuda {

absl::Status ToStatus(cudaError_t error, absl::string_view what, int device) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string sentence = absl::StrCat(
      "CUDA device ", device, " failed in ", what, ": ",
      cudaGetErrorString(error), " (error ", static_cast<int>(error), ")");
  return error == cudaErrorMemoryAllocation
             ? absl::ResourceExhaustedError(sentence)
             : absl::UnavailableError(sentence);
}

bool ErrorLatch::Check(cudaError_t error, absl::string_view what) {
  if (error != cudaSuccess) Fail(ToStatus(error, what, device_));
  return ok();
}

bool ErrorLatch::Fail(const absl::Status& status) {
  status_.Update(status);
  return ok();
}

}  // namespace atl::engine::cuda
