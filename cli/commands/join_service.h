// `atoll join --service`.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/flags/flags.h"
#include "cli/context.h"
#include "cli/doctor/check_before_join.h"
#include "coordinator/client/client.h"
#include "worker/api/run_data.h"

namespace atl::cli {

// The systemd user unit.
struct ServiceUnit {
  std::string run_id;
  std::vector<std::string> command;  // [0] is the program's absolute path.
  std::string working_directory;
  // "NAME=VALUE".
  std::vector<std::string> environment;
  std::vector<std::string> writable_directories;  // Absolute.
  int nice = 10;
  int64_t memory_bytes = 0;  // 0: no bound.
};

// "atoll-RUN.service".
std::string UnitName(const std::string& run_id);

// The unit file. Pure. Its limits are no wall: a user's systemd ignores most of
// them. The sandbox of `atoll join` is. There is no PrivateDevices, which would
// hide GPUs.
// INVALID_ARGUMENT: a value has a control character.
absl::StatusOr<std::string> UnitText(const ServiceUnit& unit);

// Writes the unit to `directory` (systemd's for this user), then enables and
// starts it with systemctl; a service that runs is restarted. After an error the
// file is as it was before.
// FAILED_PRECONDITION: there is no systemd for this user. The message has what
// systemctl says. ALREADY_EXISTS: a file of a person has the unit's name.
// `environment` ("NAME=VALUE") is that of systemctl.
absl::Status InstallUnit(const ServiceUnit& unit, const std::string& directory,
                         std::vector<std::string> environment);

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
