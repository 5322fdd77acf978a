// The timing of a run: how its rounds follow each other, and how long a trainer
// may be silent. Pure. Thread-safe.

#pragma once

#include <cstdint>

#include "atoll/v1/run.pb.h"

namespace atl {

// A trainer that has not answered for so long is told of: a step, a save or an
// evaluation may take less.
inline constexpr double kTrainerSilenceSecondsMin = 30;

// True for an async run: elastic timing, and a contribution's anchor may be up
// to `max_staleness` versions older than the version it is merged into. Every
// fragment then has one standing OPEN, and every contribution makes a version.
inline bool IsAsync(const v1::ScheduleSpec& schedule) {
  return schedule.timing() == v1::TIMING_ELASTIC &&
         schedule.max_staleness() > 0;
}

// True if a contribution from `anchor_version`, any number, may still be merged
// into `version` (>= 0). A synchronous run allows no staleness.
inline bool IsFreshEnough(const v1::ScheduleSpec& schedule,
                          int64_t anchor_version, int64_t version) {
  return anchor_version >= version - schedule.max_staleness();
}

}  // namespace atl
