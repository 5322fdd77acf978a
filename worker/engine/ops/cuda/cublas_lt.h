// cuBLASLt's functions for programs that start without the library.
//
// cublas_lt.cc defines the functions of cublasLt.h that we call. They forward
// to the library, which the first call opens. Without the library they return
// CUBLAS_STATUS_NOT_INITIALIZED, and cublasLtGetStatusString says why. A new
// function that we call must be added there.

#pragma once

#include "absl/status/status.h"

namespace atl::engine::cuda {

// Opens cuBLASLt. Thread-safe.
//
// FAILED_PRECONDITION: it is missing; the message says what to install.
absl::Status CheckCublasLt();

}  // namespace atl::engine::cuda
