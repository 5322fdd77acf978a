// Islands' plans of one run, encoded in parts.
//
// A plan is sent as three encoded WatchPlanResponse messages in a row: its
// head, the part that all islands of the run share, and the island's own part.
// Protobuf merges them into one message. Open rounds are in the own part,
// because they mix what all islands are told with an island's own slot.
//
// Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "atoll/v1/plan.pb.h"
#include "coordinator/core/outputs/plans.h"

namespace atl::coordinator {

struct SharedPart {
  std::shared_ptr<const std::string> bytes;  // As islands get it.
  // For EncodeOwnPart: the open rounds without an island's part, and the slots
  // that take turns to evaluate.
  v1::IslandPlan rounds;
  std::vector<v1::OpenRound> sealed;  // As ListSealedRounds returns them.
  std::vector<int32_t> evaluators;
};

// Encodes what all islands share, without `revision`, `coordinator_epoch`,
// `log` and `persisted_commit_seq`.
SharedPart EncodeSharedPart(const RunState& state, const Observations& observed,
                            const ServerDirectory& servers);

// Encodes the own part of the island with `slot`. `shared` is of the present
// state. With `has_sealed`: it has the sealed rounds too, unless their SEAL
// concerns the island. If this text is as before, a SEAL is all that is new: that
// is no reason to send a plan, because its COMMIT or its end follows.
std::string EncodeOwnPart(const SharedPart& shared, const RunState& state,
                          const Observations& observed, int32_t slot,
                          bool has_sealed = false);

// Encodes the head: the fields that EncodeSharedPart leaves out. They alone are
// no reason to send a plan.
std::string EncodeHead(v1::IslandPlan head);

}  // namespace atl::coordinator
