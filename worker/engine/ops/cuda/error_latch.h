// Keeps the first error of a device.
//
// Thread-compatible.

#ifndef WORKER_ENGINE_OPS_CUDA_ERROR_LATCH_H_
#define WORKER_ENGINE_OPS_CUDA_ERROR_LATCH_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/engine/ops/cuda/runtime.h"

namespace atl::engine::cuda {

// What `error` means after `what` was asked of device `device`: OK for none,
// else a sentence.
//
// RESOURCE_EXHAUSTED: out of memory. UNAVAILABLE: all others, which a device
// does not recover from in this process.
absl::Status ToStatus(cudaError_t error, absl::string_view what, int device);

class ErrorLatch {
 public:
  explicit ErrorLatch(int device) : device_(device) {}

  int device() const { return device_; }
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

  // The first error counts. Returns whether all is well.
  bool Check(cudaError_t error, absl::string_view what);
  bool Fail(const absl::Status& status);
  // Gives the error back and is as new: it was of calls that were never made.
  absl::Status Forget() { return std::exchange(status_, absl::OkStatus()); }

 private:
  const int device_;
  absl::Status status_;
};

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_ERROR_LATCH_H_
