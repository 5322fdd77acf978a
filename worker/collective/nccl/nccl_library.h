// NCCL's functions for programs that start without the library.
//
// nccl_library.cc defines the functions of nccl.h that we call. They forward to
// the library, which the first call opens. Without the library they return
// ncclSystemError, and ncclGetLastError says why. A new function that we call
// must be added there. Tests link testing/emulated_nccl.cc in its place.

#pragma once

#include "absl/status/status.h"

namespace atl::collective {

// Opens NCCL. Thread-safe.
//
// FAILED_PRECONDITION: it is missing, or older than at compile time; the
// message says what to install.
absl::Status CheckNccl();

}  // namespace atl::collective
