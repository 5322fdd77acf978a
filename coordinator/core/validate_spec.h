// What CreateRun refuses: every field out of range, and every combination that
// makes no sense, each with a sentence why.
//
// Pure. Thread-safe.

#ifndef COORDINATOR_CORE_VALIDATE_SPEC_H_
#define COORDINATOR_CORE_VALIDATE_SPEC_H_

#include <cstdint>
#include <vector>

#include "atoll/v1/run.pb.h"
#include "coordinator/core/errors.h"

namespace atl::coordinator {

// Bounds that keep plans small and memory bounded.
inline constexpr int32_t kServersMax = 256;
inline constexpr int32_t kFragmentsMax = 256;
inline constexpr int32_t kDataShardsMax = 65536;
inline constexpr int32_t kIslandsMax = 1024;

// All that is wrong with `spec`; field paths start at "spec.". Empty if it can
// be run.
std::vector<FieldViolation> ValidateSpec(const v1::RunSpec& spec);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_VALIDATE_SPEC_H_
