#include "cli/flags/lent_flags.h"

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

}  // namespace atl::cli
