#include "coordinator/core/enrolment/enrolment_run.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "base/status/refusal.h"
#include "base/time/proto_time.h"

namespace atl::coordinator {
namespace {

constexpr auto kFailed = absl::StatusCode::kFailedPrecondition;

// Islands that are there or may come, and what they count in a quorum.
struct Islands {
  int64_t count = 0;
  int64_t counted = 0;
};

Islands CountIslands(const v1::Token& asked, const EnrolmentRun& run,
                     const std::vector<v1::Token>& tokens, absl::Time now) {
  Islands islands;
  std::set<std::string> valid;
  const auto add = [&](const v1::Token& token) {
    valid.insert(token.token_id());
    islands.count += token.use_count_max();
    islands.counted +=
        token.weight_share_max() > 0 ? 1 : token.use_count_max();
  };
  add(asked);
  for (const v1::Token& token : tokens) {
    if (token.role() == v1::ENROLLED_ROLE_ISLAND && !token.has_revoke_time() &&
        now < FromProto(token.expire_time())) {
      add(token);
    }
  }
  std::set<std::string> ended;  // Tokens with a share.
  for (const EnrolmentRun::Present& island : run.present) {
    if (valid.contains(island.token_id)) continue;
    islands.count += 1;
    if (!island.has_share || ended.insert(island.token_id).second) {
      islands.counted += 1;
    }
  }
  return islands;
}

}  // namespace

absl::Status CheckFits(const v1::CreateTokenRequest& request,
                       const EnrolmentRun& run,
                       const std::vector<v1::Token>& tokens, absl::Time now) {
  const v1::Token& asked = request.token();
  if (asked.role() != v1::ENROLLED_ROLE_ISLAND) return absl::OkStatus();
  if (run.is_island_durability) return RefuseIslandDurability(run.run_id);
  if (asked.weight_share_max() > 0) {
    if (!run.ignores_weights.empty()) {
      return Refuse(
          kFailed, "WEIGHT_SHARE_UNUSED",
          absl::StrCat("a share of weight has no effect in run ", run.run_id,
                       ": ", run.ignores_weights,
                       ". Leave out --weight-share, and limit --uses"));
    }
    const Islands islands = CountIslands(asked, run, tokens, now);
    if (islands.count >= run.min_quorum &&
        islands.counted < run.min_quorum) {
      return Refuse(
          kFailed, "QUORUM_UNREACHABLE",
          absl::StrCat(
              "run ", run.run_id, " needs a quorum of ", run.min_quorum,
              ", which counts one for each token with --weight-share; the ",
              islands.count, " islands that its tokens and members make count ",
              islands.counted,
              ". Make one token for each island (--uses 1), join islands of "
              "your own, or create the run with a lower schedule.min_quorum"));
    }
  }
  if (!run.has_norm_bound && !request.accept_unbounded()) {
    return Refuse(
        kFailed, "NO_NORM_BOUND",
        absl::StrCat("run ", run.run_id,
                     " has no outer.enrolled_norm_factor: one contribution of "
                     "an enrolled island may replace the model. Create the run "
                     "with a factor, or add --accept-unbounded"));
  }
  return absl::OkStatus();
}

absl::Status RefuseIslandDurability(const std::string& run_id) {
  return Refuse(
      kFailed, "ISLAND_DURABILITY",
      absl::StrCat("run ", run_id,
                   " has durability \"island\": its shards merge contributions "
                   "before they are checked, so no island may join it with a "
                   "join string. Use a run with another durability, or a "
                   "certificate of `atoll ca issue --role island`"));
}

}  // namespace atl::coordinator
