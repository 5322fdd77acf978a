// Keeps the first error of a device. Thread-compatible.

#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/engine/ops/cuda/runtime.h"

namespace atl::engine::cuda {

// OK, or an error that says that `device` failed in `what`.
//
// RESOURCE_EXHAUSTED: out of memory. UNAVAILABLE: any other error; the device
// does not recover in this process.
absl::Status ToStatus(cudaError_t error, absl::string_view what, int device);

class ErrorLatch {
 public:
  explicit ErrorLatch(int device) : device_(device) {}

  int device() const { return device_; }
  bool ok() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

  // Keeps the first error. Returns true as long as no error is kept.
  bool Check(cudaError_t error, absl::string_view what);
  bool Fail(const absl::Status& status);
  // Returns and clears the error. For calls that were recorded, not run.
  absl::Status Forget() { return std::exchange(status_, absl::OkStatus()); }

 private:
  const int device_;
  absl::Status status_;
};

}  // namespace atl::engine::cuda
