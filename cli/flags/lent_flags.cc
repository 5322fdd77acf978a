#include "cli/flags/lent_flags.h"

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"
#include "cli/units/units.h"

namespace atl::cli {
namespace {

absl::StatusOr<int64_t> ReadSize(const std::string& text, const char* flag) {
  if (text.empty()) return 0;
  const absl::StatusOr<int64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) return WithContext(bytes.status(), flag);
  return bytes;
}

// Returns 0 for an empty text.
absl::StatusOr<double> ReadCap(const std::string& flag, const std::string& text,
                               int process_count) {
  if (text.empty()) return 0;
  absl::StatusOr<double> cap = ParseBandwidth(text);
  if (!cap.ok()) return WithContext(cap.status(), flag);
  if (*cap < process_count * server::kCapBytesPerSecondMin) {
    return UsageError(
        absl::StrCat(flag, " ", text, " is less than ",
                     FormatBandwidth(server::kCapBytesPerSecondMin),
                     process_count == 1
                         ? ""
                         : absl::StrCat(" for each of the island's ",
                                        process_count, " processes")),
        "Servers may close slower streams as dead. Leave the flag out for no "
        "cap.");
  }
  return cap;
}

}  // namespace

void AddLentFlags(flags::Command& command, LentFlags& flags) {
  command.Add("--memory", flags.memory,
              "Memory that this machine lends: 4GB. A run that needs "
              "more is not joined; with --service also a limit. "
              "Default with a join string: half of the free memory");
  command.Add("--disk", flags.disk,
              "Disk that this machine lends for local checkpoints: "
              "20GB. A run that needs more is not joined. Default with "
              "a join string: 10GB, or a tenth of the free disk if that "
              "is more");
}

absl::StatusOr<Lent> ReadLent(const LentFlags& flags) {
  Lent lent;
  ASSIGN_OR_RETURN(lent.memory_bytes, ReadSize(flags.memory, "--memory"));
  ASSIGN_OR_RETURN(lent.disk_bytes, ReadSize(flags.disk, "--disk"));
  return lent;
}

void AddCapFlags(flags::Command& command, const std::string& whose,
                 CapFlags& flags) {
  command.Add("--up", flags.up,
              absl::StrCat("Most that ", whose,
                           " sends to all servers: 5Mb/s, 1MB/s; "
                           "default: no cap"));
  command.Add("--down", flags.down,
              "The same for what it receives from all servers");
}

absl::StatusOr<server::BandwidthCaps> ReadCaps(const CapFlags& flags,
                                               int process_count) {
  server::BandwidthCaps caps;
  ASSIGN_OR_RETURN(caps.up_bytes_per_second,
                   ReadCap("--up", flags.up, process_count));
  ASSIGN_OR_RETURN(caps.down_bytes_per_second,
                   ReadCap("--down", flags.down, process_count));
  return caps;
}

std::vector<std::string> CapArguments(const CapFlags& flags) {
  std::vector<std::string> arguments;
  if (!flags.up.empty()) arguments.push_back(absl::StrCat("--up=", flags.up));
  if (!flags.down.empty()) {
    arguments.push_back(absl::StrCat("--down=", flags.down));
  }
  return arguments;
}

}  // namespace atl::cli
