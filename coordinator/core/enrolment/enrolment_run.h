// A run as enrolment sees it, and the tokens that it does not take. Pure.
// Thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/enrolment_service.pb.h"

namespace atl::coordinator {

struct EnrolmentRun {
  // An island that is a member now.
  struct Present {
    std::string token_id;       // Empty: it has none.
    bool has_share = false;     // Its weight is limited.
  };

  std::string cluster_id;
  std::string run_id;
  std::string run_uid;
  // Why its result does not follow the weights of contributions, as the subject
  // and verb of a sentence; empty: it does.
  std::string ignores_weights;
  int64_t min_quorum = 1;
  int64_t islands_max = 1;  // Islands that it can have.
  bool has_norm_bound = true;  // For enrolled islands.
  // Enrolled islands may not join it: it has durability ISLAND.
  bool is_island_durability = false;
  // Whether an island with this id has joined it.
  std::function<bool(const std::string& island_id)> is_member =
      [](const std::string&) { return false; };
  // Whether such an island is a member now.
  std::function<bool(const std::string& island_id)> is_present =
      [](const std::string&) { return false; };
  std::vector<Present> present;
};

// OK if the run can use the token that `request` asks for. `tokens` has the
// run's other tokens.
//
// FAILED_PRECONDITION: ISLAND_DURABILITY, NO_NORM_BOUND, WEIGHT_SHARE_UNUSED,
// QUORUM_UNREACHABLE, as enrolment_service.proto has them.
absl::Status CheckFits(const v1::CreateTokenRequest& request,
                       const EnrolmentRun& run,
                       const std::vector<v1::Token>& tokens, absl::Time now);

// FAILED_PRECONDITION, ISLAND_DURABILITY.
absl::Status RefuseIslandDurability(const std::string& run_id);

}  // namespace atl::coordinator
