// The result that `atoll join` prints. Pure.

#pragma once

#include <string>

#include "cli/output/output.h"
#include "worker/api/run_island.h"

namespace atl::cli {

// The result as data: the counters, measurements, forecasts and what became of
// the contributions (AddTally of cli/volunteer/local_status.h).
Json ToData(const worker::IslandProgress& at, const std::string& run_id,
            const std::string& island_id);

// The main part of it as a table.
std::string ToText(const worker::IslandProgress& at, const std::string& run_id,
                   const std::string& island_id);

}  // namespace atl::cli
