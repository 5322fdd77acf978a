// The final status of a bulk stream.

#pragma once

#include "absl/status/status.h"

namespace atl::server {

// Converts `status` to a bulk stream's final status. If it has no reason, adds
// that of the store's error (DISK_FULL with a RetryInfo, DISK_DAMAGED,
// ALREADY_DECIDED) or its code's name. Pure.
absl::Status ToDataStatus(absl::Status status);

}  // namespace atl::server
