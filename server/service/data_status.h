// What an error on the data path tells its caller.

#ifndef SERVER_SERVICE_DATA_STATUS_H_
#define SERVER_SERVICE_DATA_STATUS_H_

#include "absl/status/status.h"

namespace atl::server {

// `status` as a bulk stream ends with it: one that has no reason yet gets that
// of the store's error (DISK_FULL with a RetryInfo, DISK_DAMAGED,
// ALREADY_DECIDED), else its code's name. Pure.
absl::Status ToDataStatus(absl::Status status);

}  // namespace atl::server

#endif  // SERVER_SERVICE_DATA_STATUS_H_
