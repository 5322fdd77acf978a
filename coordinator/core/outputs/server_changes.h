// The changes of a run's plan from one plan to the next on a server's stream.
// A change costs what has changed: contents of seals and commits, members and
// names of islands that were given before are not built again.
//
// Pure. Thread-compatible.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "atoll/v1/plan.pb.h"
#include "base/codec/sha256.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// The parts of a run's plan that may have changed since the plan before.
struct ServerMarks {
  bool all_members = true;
  std::vector<int32_t> members;  // Unless all_members: in order.
  bool names = true;             // Names of revoked and enrolled islands.
};

// Adds the names of revoked and enrolled islands to a plan.
using AddNames = std::function<void(v1::ServerRunPlan&)>;

class ServerRunChanges {
 public:
  // The newest plan as ServerRunPlan.is_change has it; whole if it is the first,
  // or if the run or its epoch is another one. nullopt: nothing has changed.
  std::optional<v1::ServerRunPlan> Next(const RunState& state,
                                        const Observations& observed,
                                        int32_t shard,
                                        const ServerMarks& marks,
                                        const AddNames& add_names);

  // The memory that it takes.
  size_t memory_bytes() const {
    return sizeof(*this) - sizeof(given_) + given_.SpaceUsedLong() +
           lists_.size() * (sizeof(*lists_.begin()) + 4 * sizeof(void*));
  }

 private:
  void KeepNames(const v1::ServerRunPlan& plan);
  // Omits a list of `plan` that is as before. True if it is.
  template <typename List>
  bool Omit(int number, List& list, v1::ServerRunPlan& plan);

  // The newest plan's run, and the names of its seals and commits.
  v1::ServerRunPlan given_;
  std::map<int, codec::Sha256Digest> lists_;  // By field number.
  // The newest plan, if it had no contents.
  std::optional<codec::Sha256Digest> whole_;
};

}  // namespace atl::coordinator
