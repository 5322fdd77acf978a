// Checks what islands say of themselves. Pure. Thread-safe.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/island_service.pb.h"

namespace atl::coordinator {

// INVALID_ARGUMENT: no device, too large, or an impossible number.
absl::Status CheckCapabilities(const v1::IslandCapabilities& capabilities);

// Largest count in a progress report: sums over all islands fit an int64.
inline constexpr int64_t kProgressCountMax = int64_t{1} << 52;

// Synchronizations in a progress report, and the longest phase of one.
inline constexpr int kSyncPhasesMax = 16;
inline constexpr absl::Duration kPhaseMax = absl::Hours(24 * 366);
// Pieces of unpushed work in a progress report.
inline constexpr int kUnpushedMax = 64;

// INVALID_ARGUMENT: a number is negative or not finite, or a count above
// kProgressCountMax; there are more than kSyncPhasesMax synchronizations or
// kUnpushedMax pieces of unpushed work; a
// phase is not one that islands report, is there twice, does not start between
// 1970 and 9999, or lasts longer than kPhaseMax.
absl::Status CheckProgress(const v1::ReportProgressRequest& request);

// INVALID_ARGUMENT: the step is negative or above kProgressCountMax, or the loss
// is not finite.
absl::Status CheckLeave(const v1::LeaveRequest& request);
// INVALID_ARGUMENT: a number is negative, or CheckProgress refuses the progress;
// its fields are named as "progress.NAME".
absl::Status CheckHeartbeat(const v1::HeartbeatRequest& request);

}  // namespace atl::coordinator
