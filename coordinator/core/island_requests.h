// What islands may say of themselves.
//
// Pure. Thread-safe.

#ifndef COORDINATOR_CORE_ISLAND_REQUESTS_H_
#define COORDINATOR_CORE_ISLAND_REQUESTS_H_

#include "absl/status/status.h"
#include "atoll/v1/island_service.pb.h"

namespace atl::coordinator {

// INVALID_ARGUMENT: no device, too large, or a number that makes no sense.
absl::Status CheckCapabilities(const v1::IslandCapabilities& capabilities);

// INVALID_ARGUMENT: a number is negative or not finite.
absl::Status CheckProgress(const v1::ReportProgressRequest& request);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_ISLAND_REQUESTS_H_
