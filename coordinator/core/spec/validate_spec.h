// Checks a run's spec for CreateRun: every field out of range and every invalid
// combination gives a sentence. Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <vector>

#include "atoll/v1/run.pb.h"
#include "base/status/refusal.h"

namespace atl::coordinator {

inline constexpr int32_t kServersMax = 256;
inline constexpr int32_t kFragmentsMax = 256;
inline constexpr int32_t kIslandsMax = 1024;
// Fragments times islands of a run. One server's plan holds the SEALs of all
// fragments, about 50 bytes a contribution, and must fit one message of 4 MiB.
inline constexpr int32_t kFragmentsTimesIslandsMax = 32768;

// Islands that a run of `spec` may have: kIslandsMax for up to 32 fragments.
int32_t IslandsMax(const v1::RunSpec& spec);

// Returns all faults of `spec`. Field paths start with "spec.".
std::vector<FieldViolation> ValidateSpec(const v1::RunSpec& spec);

}  // namespace atl::coordinator
