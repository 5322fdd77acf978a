// Converts records to rows of a run's history. Pure. Thread-safe.

#pragma once

#include <optional>

#include "coordinator/core/outputs/batch.h"

namespace atl::coordinator {

// The row of a COMMIT or an evaluation; nullopt for all other records.
std::optional<HistoryRow> ToHistory(const LogEntry& entry);

}  // namespace atl::coordinator
