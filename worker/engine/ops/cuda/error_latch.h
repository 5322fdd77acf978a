// Keeps the first error of a device. Thread-compatible.

#ifndef WORKER_ENGINE_OPS_CUDA_ERROR_LATCH_H_
#define WORKER_ENGINE_OPS_CUDA_ERROR_LATCH_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/engine/ops/cuda/runtime.h"

namespace atl::engine::cuda {

// OK if `error` is none, otherwise a sentence: `device` failed in `what`.
//
// RESOURCE_EXHAUSTED: out of memory. UNAVAILABLE: any other error; the device
// does not recover within this process.
absl::Status ToStatus(cudaError_t error, absl::string_view what, int device);

class ErrorLatch {
 public:
  explicit ErrorLatch(int device) : device_(device) {}

  int device() const { return device_; }
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

  // Keeps `error` if it is the first. Returns whether there is no error yet.
  bool Check(cudaError_t error, absl::string_view what);
  bool Fail(const absl::Status& status);
  // Returns the error and clears it. For errors of calls that were only
  // recorded.
  absl::Status Forget() { return std::exchange(status_, absl::OkStatus()); }

 private:
  const int device_;
  absl::Status status_;
};

}  // namespace atl::engine::cuda

#endif  // WORKER_ENGINE_OPS_CUDA_ERROR_LATCH_H_
