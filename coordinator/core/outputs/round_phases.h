// Adds to committed rounds how long their phases took. Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/v1/training_state_service.pb.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/phase_table.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// The phases that the island of a slot has reported.
struct IslandPhases {
  std::string island_id;
  PhaseTable phases;
};

// By slot. Cheap: the tables are shared.
std::vector<IslandPhases> ListPhases(const RunState& state,
                                     const Observations& observed);

// Sets RoundContribution.phases where the island's report is known. Leaves out
// the rounds that would bring the page above `bytes_max`, but never the first
// one; the page's token then continues with them.
void AddPhases(const std::vector<IslandPhases>& islands, int64_t bytes_max,
               v1::ListRoundsResponse& page);

}  // namespace atl::coordinator
