// Checks what islands say of themselves. Pure. Thread-safe.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "atoll/v1/island_service.pb.h"

namespace atl::coordinator {

// INVALID_ARGUMENT: no device, too large, or an impossible number.
absl::Status CheckCapabilities(const v1::IslandCapabilities& capabilities);

// Largest count in a progress report: sums over all islands fit an int64.
inline constexpr int64_t kProgressCountMax = int64_t{1} << 52;

// INVALID_ARGUMENT: a number is negative or not finite, or a count above
// kProgressCountMax.
absl::Status CheckProgress(const v1::ReportProgressRequest& request);

}  // namespace atl::coordinator
