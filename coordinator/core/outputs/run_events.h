// Converts durable records to the events of WatchRun. Pure. Thread-safe.

#pragma once

#include <optional>

#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/v1/training_state_service.pb.h"

namespace atl::coordinator {

// The event of a record; nullopt for records that readers do not see
// (placement, version 0, verdicts, outcomes outside of rounds).
std::optional<v1::RunEvent> ToEvent(const storage::v1::Record& record);

}  // namespace atl::coordinator
