// `atoll join --service`.

#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "base/flags/flags.h"
#include "cli/context.h"
#include "cli/doctor/check_before_join.h"
#include "coordinator/client/client.h"
#include "worker/api/run_data.h"

namespace atl::cli {

struct ServiceRequest {
  std::string run_id;
  std::string work_directory;  // Empty: the default.
  int nice = 10;
  int64_t memory_bytes = 0;  // 0: no bound.
};

// Returns the error that would end the service at once: the run is larger than
// `limits`, or `rights` do not allow its data. OK also if the coordinator does not
// answer: the service waits for it. Errors: as of CheckRunSize and FindDataPlace.
absl::Status CheckService(const coordinator::ClientOptions& coordinator,
                          const std::string& run_id, const RunLimits& limits,
                          const worker::LocalDataRights& rights);

// Installs a systemd user unit that joins with the flags that were given to
// `command`, and says how to look at it and to remove it. A join string is left
// out: this machine is enrolled by now.
// INVALID_ARGUMENT (a usage error): no run is named. Others as InstallUnit.
absl::Status InstallService(Context& context, const flags::Command& command,
                            const ServiceRequest& request);

}  // namespace atl::cli
