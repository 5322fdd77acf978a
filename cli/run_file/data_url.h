// Run files with data by URL: `[data] url`. Pure. Thread-safe.

#pragma once

#include <set>
#include <string>
#include <vector>

#include "atoll/v1/run.pb.h"

namespace atl::cli {

// Clears what a preset or the defaults say about other data, for a file that
// gives data.url. `own`: the file's keys.
void DropOtherData(const std::set<std::string>& own, v1::DataSpec* data);

// Faults of the keys of [data], one sentence each.
std::vector<std::string> FindDataFaults(const v1::DataSpec& data);

}  // namespace atl::cli
