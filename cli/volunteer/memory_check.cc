#include "cli/volunteer/memory_check.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/kubernetes/resources.h"
#include "cli/output/error.h"
#include "cli/output/table.h"
#include "worker/api/planner.h"

namespace atl::cli {

absl::Status CheckMemory(const v1::RunSpec& spec, int64_t memory_bytes) {
  const absl::StatusOr<worker::PlannedModel> model =
      worker::ModelOfSpec(spec.model());
  if (!model.ok()) return absl::OkStatus();
  ResourceInput input;
  input.model = *model;
  input.run = spec;
  input.exchange = worker::ExchangeOfRun(spec);
  input.tokens_a_step = std::max<int64_t>(
      1, int64_t{spec.inner().batch_size()} * spec.model().sequence_length());
  input.server_count = std::max(1, spec.server_count());
  input.island_count = std::max(1, spec.schedule().island_count_min());
  const int64_t needed = PlanResources(input).island.memory_bytes();
  if (needed <= memory_bytes) return absl::OkStatus();
  return WithHint(
      WithExitCode(
          WithReason(absl::FailedPreconditionError(absl::StrCat(
                         "the run needs about ", FormatBytes(needed),
                         " of memory on this machine, and --memory lends ",
                         FormatBytes(memory_bytes))),
                     "TOO_LITTLE_MEMORY"),
          ExitCode::kPreflightFailed),
      "Lend more, or join a run with a smaller model. Nothing was joined.");
}

}  // namespace atl::cli
