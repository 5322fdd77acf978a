// Says which plans of a run may have changed since they were last built.
//
// Plain values. Pure. Thread-compatible.

#pragma once

#include <cstdint>
#include <set>

#include "atoll/storage/v1/coordinator_records.pb.h"

namespace atl::coordinator {

struct PlanChange {
  bool log = false;        // The run's log has new records.
  bool servers = false;    // The plans of the run's servers,
  std::set<int32_t> members;  // in them, the members of these slots,
  bool all_members = false;   // or all members,
  bool names = false;  // and the names of revoked and enrolled islands.
  bool shared = false;     // The part that all islands' plans share.
  bool all_slots = false;  // The own part of every island's plan.
  std::set<int32_t> slots;  // The own parts of these islands.

  bool any() const { return log || servers || for_islands(); }
  bool for_islands() const { return shared || all_slots || !slots.empty(); }
  // True if the own part of the island with `slot` may have changed.
  bool Concerns(int32_t slot) const {
    return all_slots || slots.contains(slot);
  }
  void Add(const PlanChange& other);
};

// Everything that a record of a run can change, as after one of an unknown kind.
PlanChange ChangeOfAll();

// The plans that `record` of a run may have changed.
PlanChange ChangeBy(const storage::v1::Record& record);

}  // namespace atl::coordinator
