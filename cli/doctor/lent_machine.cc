#include "cli/doctor/lent_machine.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/layout/external_model.h"
#include "base/layout/run_length.h"
#include "base/status/status_macros.h"
#include "cli/kubernetes/resources.h"
#include "cli/output/error.h"
#include "cli/output/table.h"
#include "worker/api/planner.h"

namespace atl::cli {
namespace {

constexpr int64_t kDiskBytesMin = 10'000'000'000;

// As ParseBytes reads it, not less than `bytes`.
std::string AsFlag(int64_t bytes) {
  return absl::StrCat(bytes / 1'000'000 + 1, "MB");
}

absl::Status TooLittle(absl::string_view what, absl::string_view lends,
                       absl::string_view flag, int64_t needed,
                       absl::string_view reason) {
  return WithHint(
      WithExitCode(WithReason(absl::FailedPreconditionError(
                                  absl::StrCat(what, ", and ", lends)),
                              reason),
                   ExitCode::kPreflightFailed),
      absl::StrCat("`atoll join ", flag, " ", AsFlag(needed),
                   "` lends that much."));
}

}  // namespace

absl::StatusOr<RunNeeds> ComputeRunNeeds(const v1::RunSpec& spec) {
  RunNeeds needs;
  needs.is_external = IsExternal(spec.model());
  needs.fetches_data = !spec.data().url().empty();
  ResourceInput input;
  input.run = spec;
  input.exchange = worker::ExchangeOfRun(spec);
  input.tokens_a_step = TokensAStep(spec);
  input.server_count = std::max(1, spec.server_count());
  input.island_count = std::max(1, spec.schedule().island_count_min());
  if (needs.is_external) {
    int64_t elements = 0;
    for (const int64_t count : input.exchange.fragment_elements) {
      elements += count;
    }
    ASSIGN_OR_RETURN(input.model, worker::ModelOfSize(elements, 1));
  } else {
    ASSIGN_OR_RETURN(input.model, worker::ModelOfSpec(spec.model()));
  }
  const IslandResources island = PlanResources(input).island;
  needs.memory_bytes = needs.is_external
                           ? island.exchange_bytes + island.own_bytes
                           : island.memory_bytes();
  needs.disk_bytes = island.disk_bytes;
  return needs;
}

RunLimits LimitsOf(const MachineFacts& machine, const Lent& given,
                   bool is_enrolled) {
  RunLimits limits;
  if (is_enrolled) {
    const int64_t free =
        machine.available_memory_bytes > 0
            ? std::min(machine.available_memory_bytes, machine.memory_bytes)
            : machine.memory_bytes;
    limits.memory_bytes = free / 2;
    limits.disk_bytes = std::max(kDiskBytesMin, machine.state.free_bytes / 10);
  }
  limits.memory_is_given = given.memory_bytes > 0;
  limits.disk_is_given = given.disk_bytes > 0;
  if (limits.memory_is_given) limits.memory_bytes = given.memory_bytes;
  if (limits.disk_is_given) limits.disk_bytes = given.disk_bytes;
  return limits;
}

absl::Status CheckMemory(const RunNeeds& needs, const RunLimits& limits) {
  if (needs.memory_bytes <= limits.memory_bytes) return absl::OkStatus();
  const std::string lent = FormatBytes(limits.memory_bytes);
  return TooLittle(
      absl::StrCat("the run needs about ", FormatBytes(needs.memory_bytes),
                   " of memory on this machine",
                   needs.is_external ? " besides the trainer's own" : ""),
      limits.memory_is_given
          ? absl::StrCat("--memory lends ", lent)
          : absl::StrCat("without --memory it lends half of its free memory, ",
                         lent),
      "--memory", needs.memory_bytes, "TOO_LITTLE_MEMORY");
}

absl::Status CheckDisk(const RunNeeds& needs, const RunLimits& limits) {
  if (needs.disk_bytes <= limits.disk_bytes) return absl::OkStatus();
  const std::string lent = FormatBytes(limits.disk_bytes);
  return TooLittle(
      absl::StrCat("the run's local checkpoints need about ",
                   FormatBytes(needs.disk_bytes), " of disk"),
      limits.disk_is_given
          ? absl::StrCat("--disk lends ", lent)
          : absl::StrCat("without --disk this machine lends ", lent,
                         ", the larger of 10 GB and a tenth of the free disk"),
      "--disk", needs.disk_bytes, "TOO_LITTLE_DISK");
}

}  // namespace atl::cli
