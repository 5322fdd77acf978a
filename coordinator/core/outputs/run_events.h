// Turns durable records into the events of WatchRun, and into warnings for the
// program's log. Pure. Thread-safe.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "coordinator/core/outputs/batch.h"

namespace atl::coordinator {

// The event of a record; nullopt for records that readers do not see
// (placement, version 0, verdicts, outcomes outside of rounds other than
// REJECTED). `island_ids`: by slot, at the time of the record.
std::optional<v1::RunEvent> ToEvent(const storage::v1::Record& record,
                                    const std::vector<std::string>& island_ids);

// Warnings that ListWarnings returns at most.
inline constexpr size_t kWarningsMax = 16;

// A sentence for each refused contribution, and for each merged one with norm 0
// or above the bound of enrolled islands. If there are more than kWarningsMax,
// the first.
std::vector<std::string> ListWarnings(const Batch& batch);

}  // namespace atl::coordinator
