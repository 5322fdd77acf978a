// `atoll plan --kubernetes`.

#pragma once

#include "absl/status/status.h"
#include "cli/commands/plan_subject.h"
#include "cli/context.h"

namespace atl::cli {

// Prints the memory and disk of each program.
absl::Status PlanKubernetes(Context& context, const PlanOptions& options,
                            const Subject& subject);

}  // namespace atl::cli
