// What CreateRun refuses: every field out of range, and every combination that
// makes no sense, each with a sentence why.
//
// Pure. Thread-safe.

#ifndef COORDINATOR_CORE_SPEC_VALIDATE_SPEC_H_
#define COORDINATOR_CORE_SPEC_VALIDATE_SPEC_H_

#include <cstdint>
#include <vector>

#include "atoll/v1/run.pb.h"
#include "coordinator/core/spec/errors.h"

namespace atl::coordinator {

// Bounds that keep plans small and memory bounded.
inline constexpr int32_t kServersMax = 256;
inline constexpr int32_t kFragmentsMax = 256;
inline constexpr int32_t kDataShardsMax = 65536;
inline constexpr int32_t kIslandsMax = 1024;
// Fragments times islands of a run: the SEALs of all fragments, some 50 bytes a
// contribution, are in one plan of a server, which is a message of 4 MiB at
// most.
inline constexpr int32_t kFragmentsTimesIslandsMax = 32768;

// Islands that a run of `spec` can have: kIslandsMax up to 32 fragments.
int32_t IslandsMax(const v1::RunSpec& spec);

// All that is wrong with `spec`; field paths start at "spec.". Empty if it can
// be run.
std::vector<FieldViolation> ValidateSpec(const v1::RunSpec& spec);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_SPEC_VALIDATE_SPEC_H_
