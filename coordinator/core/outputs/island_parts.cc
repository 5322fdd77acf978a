#include "coordinator/core/outputs/island_parts.h"

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
  for (const v1::OpenRound& open : shared.rounds.open_rounds()) {
    if (open.fragment() != 0) continue;
    shared.evaluators = state.ListEvaluators(state.fragments()[0].open);
  }
  shared.bytes = std::make_shared<const std::string>(Encode(std::move(plan)));
  return shared;
}

std::string EncodeOwnPart(const SharedPart& shared, const RunState& state,
                          const Observations& observed, int32_t slot) {
  v1::IslandPlan own = shared.rounds;
  AddIsland(state, observed, slot, own, &shared.evaluators);
  return Encode(std::move(own));
}

std::string EncodeHead(v1::IslandPlan head) { return Encode(std::move(head)); }

}  // namespace atl::coordinator
