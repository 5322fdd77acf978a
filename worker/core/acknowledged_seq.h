// The outcomes that an island no longer needs from the coordinator.
//
// A restart asks for the outcomes of three kinds of contributions: that of the
// whole save, those in flight on its clock, and those for which its error
// feedback waits. The records that follow a whole save name later ones only. A
// restart may find fewer records than were written, so they change nothing
// here. worker/DESIGN.md, "Acknowledged outcomes", says why the process that
// runs needs no others.
//
// Pure. Thread-safe.

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "atoll/v1/plan.pb.h"
#include "worker/core/action.h"

namespace atl::worker {

// Returns the seq up to which no outcome is needed once the whole save `whole`
// is durable; 0: all are needed. `pending`: ContributionEncoder::Pending() when
// it was written.
inline int64_t AcknowledgedSeq(
    const SaveSummary& whole,
    const std::vector<v1::ContributionKey>& pending) {
  int64_t needed = whole.seq;
  for (const SavedTrack& track : whole.tracks) {
    if (track.seq > 0) needed = std::min(needed, track.seq);
  }
  for (const v1::ContributionKey& key : pending) {
    needed = std::min(needed, key.seq());
  }
  return std::max<int64_t>(0, needed - 1);
}

}  // namespace atl::worker
