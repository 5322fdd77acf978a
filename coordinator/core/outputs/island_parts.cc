#include "coordinator/core/outputs/island_parts.h"

#include <algorithm>
#include <utility>

#include "atoll/v1/island_service.pb.h"

namespace atl::coordinator {
namespace {

std::string Encode(v1::IslandPlan part) {
  v1::WatchPlanResponse response;
  *response.mutable_plan() = std::move(part);
  return response.SerializeAsString();
}

}  // namespace

SharedPart EncodeSharedPart(const RunState& state, const Observations& observed,
                            const ServerDirectory& servers) {
  SharedPart shared;
  v1::IslandPlan plan = BuildSharedIslandPlan(state, observed, servers);
  plan.clear_persisted_commit_seq();
  shared.rounds.mutable_open_rounds()->Swap(plan.mutable_open_rounds());
  if (state.started() && state.fragments()[0].phase != RoundPhase::kIdle) {
    shared.evaluators = state.ListEvaluators(state.fragments()[0].open);
  }
  shared.sealed = ListSealedRounds(state);
  shared.bytes = std::make_shared<const std::string>(Encode(std::move(plan)));
  return shared;
}

std::string EncodeOwnPart(const SharedPart& shared, const RunState& state,
                          const Observations& observed, int32_t slot,
                          bool has_sealed) {
  v1::IslandPlan own = shared.rounds;
  for (const v1::OpenRound& round : shared.sealed) {
    if (has_sealed && IsSealOfOthers(state, round.fragment(), slot)) {
      *own.add_open_rounds() = round;
    }
  }
  std::sort(own.mutable_open_rounds()->begin(),
            own.mutable_open_rounds()->end(),
            [](const v1::OpenRound& a, const v1::OpenRound& b) {
              return a.fragment() < b.fragment();
            });
  AddIsland(state, observed, slot, own, &shared.evaluators);
  return Encode(std::move(own));
}

std::string EncodeHead(v1::IslandPlan head) { return Encode(std::move(head)); }

}  // namespace atl::coordinator
