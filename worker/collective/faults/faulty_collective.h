// A Collective that goes wrong where a test wants it to.
//
// Thread-compatible, as any Collective.

#ifndef WORKER_COLLECTIVE_FAULTS_FAULTY_COLLECTIVE_H_
#define WORKER_COLLECTIVE_FAULTS_FAULTY_COLLECTIVE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/collective/collective.h"

namespace atl::collective {

// What happens before which call. Calls are counted from 0, over Run, Start and
// Split, and over all groups that are split from the faulty one.
struct FaultPlan {
  // Leaves at this call, and makes none from then on: UNAVAILABLE. -1: never.
  int64_t die_at_call = -1;
  // Is called before each call, on the caller's thread: a test waits or counts
  // here. May be null.
  std::function<void(int64_t call)> before_call;
};

// `inner` with the faults of `plan`. Groups that are split from it go wrong
// with it: a rank dies in all of them.
std::unique_ptr<Collective> MakeFaulty(std::unique_ptr<Collective> inner,
                                       FaultPlan plan);

}  // namespace atl::collective

#endif  // WORKER_COLLECTIVE_FAULTS_FAULTY_COLLECTIVE_H_
