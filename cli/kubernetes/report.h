// A run's needs as a table, as data, and as values of deploy/kubernetes/atoll.
// Pure. Thread-safe.

#pragma once

#include <string>

#include "cli/kubernetes/resources.h"
#include "cli/output/output.h"

namespace atl::cli {

// A row for each program, the parts of its memory, and the values.
std::string ResourcesText(const ResourceInput& input);

// The values alone: YAML for `helm install -f`.
std::string ResourcesValues(const ResourceInput& input);

// An item for each program: "program", "replicas", "memory_mib", "disk_mib"
// (with margins), and the bytes without: each part, and "disk_bytes".
Json ResourcesData(const ResourceInput& input);

}  // namespace atl::cli
