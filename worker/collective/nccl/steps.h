// What a call is to NCCL: collectives that it has, and sends, receives and
// copies for the rest.
//
// Pure.

#ifndef WORKER_COLLECTIVE_NCCL_STEPS_H_
#define WORKER_COLLECTIVE_NCCL_STEPS_H_

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

// The call's type, reduction and root hold for it. `count` are elements of the
// call's type; of kSend and kReceive in a batch of transfers bytes.
struct Step {
  StepKind kind;
  int peer = 0;  // Of kSend and kReceive.
  const void* in = nullptr;
  void* out = nullptr;
  int64_t count = 0;
};

// All sends and receives of a call go on at once. None: nothing is to be done.
// A barrier is not one: it is a sum that the caller makes of its own buffer.
// `call` passes ValidateCall.
std::vector<Step> PlanSteps(const Call& call, int rank, int size);

}  // namespace atl::collective

#endif  // WORKER_COLLECTIVE_NCCL_STEPS_H_
