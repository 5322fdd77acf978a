#include "cli/volunteer/volunteer_flags.h"

#include <sys/resource.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status/annotate.h"
#include "cli/output/error.h"
#include "cli/units/units.h"

namespace atl::cli {

void AddVolunteerFlags(flags::Command& command, VolunteerFlags& flags) {
  command.Add("--hours", flags.hours,
              "Train only in these parts of the day, in local time: "
              "22:00-07:00,12:00-13:00. Not in a strict run, whose "
              "rounds wait for every island; the same holds for the "
              "next three flags");
  command.AddFlag("--only-idle", flags.only_idle,
                  "Train only while no person has used this machine for 5 "
                  "minutes and other programs take less than a fifth of it");
  command.AddFlag("--no-battery", flags.no_battery,
                  "Do not train while this machine runs on its battery");
  command.Add("--daily-transfer", flags.daily_transfer,
              "Most bytes a day, sent and received together: 20GB; "
              "then it pauses until midnight");
  command
      .Add("--nice", flags.nice,
           "Priority of this process, from 0 to 19, the lowest")
      .Check(flags::Range(0, 19));
  AddLentFlags(command, flags.lent);
}

absl::StatusOr<Limits> ReadLimits(const VolunteerFlags& flags,
                                  int process_count, bool has_trainer) {
  Limits limits;
  if (!flags.hours.empty()) {
    absl::StatusOr<std::vector<DailyWindow>> hours = ParseHours(flags.hours);
    if (!hours.ok()) return WithContext(hours.status(), "--hours");
    limits.hours_text = flags.hours;
    limits.hours = *std::move(hours);
  }
  limits.only_idle = flags.only_idle;
  limits.no_battery = flags.no_battery;
  if (!flags.daily_transfer.empty()) {
    const absl::StatusOr<int64_t> bytes = ParseBytes(flags.daily_transfer);
    if (!bytes.ok()) return WithContext(bytes.status(), "--daily-transfer");
    limits.daily_transfer_bytes = *bytes;
  }
  if (!limits.empty() && process_count > 1) {
    return UsageError(
        "--hours, --only-idle, --no-battery and --daily-transfer are for an "
        "island of one process",
        "Leave them out.");
  }
  if (limits.only_idle && has_trainer) {
    return UsageError(
        "--only-idle would take the trainer of --trainer for another program",
        "Leave out one of them.");
  }
  return limits;
}

absl::Status SetNice(const VolunteerFlags& flags) {
  if (!flags.nice.has_value()) return absl::OkStatus();
  if (::setpriority(PRIO_PROCESS, 0, *flags.nice) == 0) return absl::OkStatus();
  return Annotate(ErrnoToStatus(errno, "setpriority"),
                  absl::StrCat("--nice ", *flags.nice,
                               ": this process already has a lower priority"));
}

}  // namespace atl::cli
