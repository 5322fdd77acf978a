// Checks where a run's data comes from and how it is cut. Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <vector>

#include "atoll/v1/run.pb.h"
#include "base/status/refusal.h"

namespace atl::coordinator {

inline constexpr int32_t kDataShardsMax = 65536;

// Adds what is wrong with `spec.data()` and with evaluations on it. Reads no
// data: whether a manifest fits the spec is checked by clients and islands.
void CheckData(const v1::RunSpec& spec,
               std::vector<FieldViolation>& violations);

}  // namespace atl::coordinator
