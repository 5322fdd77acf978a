// Decides when a round has enough contributions. Pure. Thread-safe.
//
// The islands of one join token whose weight is limited count once together:
// they have one person's weight, and must not be a majority. Every other island
// counts once.

#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "atoll/v1/plan.pb.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// The group of `slot`: all slots of one group count once together.
std::string QuorumGroup(const RunState& state, int32_t slot);

// Returns how many groups these slots have.
int64_t CountForQuorum(const RunState& state, const std::set<int32_t>& slots);

struct QuorumCount {
  // When the round's quorum counts as reached; InfiniteFuture: it is not. May
  // be ahead: a contribution counts from when it was received, but not before it
  // is due (DueTimes, measured_speeds.h). So a push of an untrained model
  // opens no grace window.
  absl::Time time = absl::InfiniteFuture();
  bool reads_speeds = false;  // Other speeds may give another time.

  bool reached() const { return time != absl::InfiniteFuture(); }
};

// Counts the contributions of `received` to the round `open`. `received_times`
// has when each was received, by slot.
QuorumCount CountQuorum(const RunState& state, const Observations& observed,
                        const v1::OpenRound& open,
                        const std::vector<int32_t>& received,
                        const std::vector<absl::Time>& received_times);

}  // namespace atl::coordinator
