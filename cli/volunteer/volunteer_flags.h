// The flags of a volunteer: --hours, --only-idle, --no-battery,
// --daily-transfer, --nice, --memory and --disk.

#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/flags/flags.h"
#include "cli/flags/lent_flags.h"
#include "cli/volunteer/limits.h"

namespace atl::cli {

// As written; empty: not given.
struct VolunteerFlags {
  std::string hours;
  bool only_idle = false;
  bool no_battery = false;
  std::string daily_transfer;
  std::optional<int> nice;
  LentFlags lent;
};

// Adds the flags to `command`. `flags` must outlive the parse.
void AddVolunteerFlags(flags::Command& command, VolunteerFlags& flags);

// INVALID_ARGUMENT (a usage error that names the flag): malformed, or a limit
// for an island of several processes or with a trainer of its own that it does
// not fit.
absl::StatusOr<Limits> ReadLimits(const VolunteerFlags& flags,
                                  int process_count, bool has_trainer);

// Sets the priority of this thread and of those that it makes later.
absl::Status SetNice(const VolunteerFlags& flags);

}  // namespace atl::cli
