// An island's work at present, as its heartbeats tell it. Pure. Thread-safe.

#pragma once

#include <string>

#include "atoll/v1/island_service.pb.h"
#include "worker/core/action.h"

namespace atl::worker {

struct PhaseFacts {
  bool on_hold = false;      // Its user has paused it.
  bool awaits_data = false;  // The action that is due found its data missing.
  // Another lane of a streaming run does so.
  bool pushes = false;
  bool pulls = false;
};

// The phase while the training lane does `action`. NO_TRAINER is not among
// them.
v1::IslandPhase FindPhase(const Action& action, const PhaseFacts& facts);

// HeartbeatRequest.phase_reason: why `action` waits or transfers; empty for
// other actions. It has no reason of the island's user, and no local path: those
// are in Action::reason of a wait that has a hindrance.
std::string PhaseReason(const Action& action);

}  // namespace atl::worker
