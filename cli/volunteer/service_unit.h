// The systemd user unit of `atoll join --service`.
//
// Thread-compatible.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace atl::cli {

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

}  // namespace atl::cli
