#include "cli/doctor/run_needs.h"

#include <algorithm>

#include "base/layout/external_model.h"
#include "base/layout/run_length.h"
#include "base/status/status_macros.h"
#include "cli/kubernetes/resources.h"
#include "worker/api/planner.h"

namespace atl::cli {

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

}  // namespace atl::cli
