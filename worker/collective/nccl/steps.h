// Maps a call to NCCL's collectives, sends, receives and copies. Pure.

#pragma once

#include <cstdint>
#include <vector>

#include "worker/collective/call.h"

namespace atl::collective {

enum class StepKind : uint8_t {
  kBroadcast,
  kReduce,
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kSend,
  kReceive,
  kCopy,  // From the rank's own input to its own output.
};

// The call's type, reduction and root apply. `count` is in elements of the
// call's type; in bytes for kSend and kReceive of a batch of transfers.
struct Step {
  StepKind kind;
  int peer = 0;
  const void* in = nullptr;
  void* out = nullptr;
  int64_t count = 0;
};

// All sends and receives of a call run concurrently. Empty: nothing to do. A
// barrier has no steps: the caller runs it as a sum over its own buffer.
// Requires: `call` passes ValidateCall.
std::vector<Step> PlanSteps(const Call& call, int rank, int size);

}  // namespace atl::collective
