#include "worker/planner/planner.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/layout/exchange.h"
#include "base/layout/fragment_schedule.h"
#include "base/layout/layout.h"
#include "base/layout/run_length.h"
#include "base/layout/run_timing.h"
#include "base/rpc/chunk_sizer.h"
#include "base/status/status_macros.h"
#include "server/client/stripes.h"

namespace atl::worker {
namespace {

std::vector<int64_t> CountFragmentElements(const v1::Layout& layout) {
  std::vector<int64_t> elements(layout.fragment_count(), 0);
  for (const v1::TensorSpec& tensor : layout.tensors()) {
    int64_t count = 1;
    for (const int64_t dimension : tensor.shape()) count *= dimension;
    if (tensor.fragment() >= 0 && tensor.fragment() < layout.fragment_count()) {
      elements[tensor.fragment()] += count;
    }
  }
  return elements;
}

// Returns whether the merge needs factors from sums over all shards.
bool NeedsVerdict(v1::MergeRuleKind rule) {
  switch (rule) {
    case v1::MERGE_RULE_KIND_RDA:
    case v1::MERGE_RULE_KIND_NORM_CLIP:
    case v1::MERGE_RULE_KIND_CENTRED_CLIP:
    case v1::MERGE_RULE_KIND_KRUM:
    case v1::MERGE_RULE_KIND_MDA:
      return true;
    default:
      return false;
  }
}

struct Scene {
  planner::Compute compute;
  planner::Link link;
  planner::Service service;
};

absl::StatusOr<Scene> MakeScene(const v1::RunSpec& spec,
                                const IslandMeasurements& measured) {
  const auto rate = [](const Measured& m) {
    return static_cast<double>(m.bytes) / m.seconds;
  };
  for (const Measured& m : {measured.pushed, measured.pulled}) {
    if (m.bytes <= 0 || m.seconds <= 0) {
      return absl::FailedPreconditionError("the link was not measured yet");
    }
  }
  if (!(measured.tokens_per_second > 0)) {
    return absl::FailedPreconditionError("the speed was not measured yet");
  }
  Scene scene;
  scene.compute.step_seconds =
      static_cast<double>(TokensAStep(spec)) / measured.tokens_per_second;
  scene.link.up_bytes_per_second = rate(measured.pushed);
  scene.link.down_bytes_per_second = rate(measured.pulled);
  scene.link.payload_share = 1;
  scene.service = MakeService(spec.durability());
  scene.service.save_seconds = 0;
  scene.service.island_count = spec.schedule().island_count_min();
  if (measured.contributed.bytes > 0 && measured.contributed.seconds > 0) {
    scene.service.encode_bytes_per_second = rate(measured.contributed);
  }
  return scene;
}

}  // namespace

absl::StatusOr<PlannedModel> ModelOfSize(int64_t element_count,
                                         int64_t layer_count) {
  if (element_count < 1 || element_count > RunLayout::kMaxElements) {
    return absl::InvalidArgumentError(
        absl::StrCat("a model has 1 to ", RunLayout::kMaxElements,
                     " parameters, not ", element_count));
  }
  PlannedModel model;
  model.element_count = element_count;
  model.layer_count = layer_count;
  if (layer_count == 0) {
    model.layer_count = std::max<int64_t>(
        1,
        std::llround(24 * std::cbrt(static_cast<double>(element_count) / 1e9)));
  }
  if (model.layer_count < 1 || model.layer_count > element_count) {
    return absl::InvalidArgumentError(absl::StrCat("a model of ", element_count,
                                                   " parameters cannot have ",
                                                   layer_count, " layers"));
  }
  return model;
}

absl::StatusOr<PlannedModel> ModelOfSpec(const v1::ModelSpec& spec) {
  ASSIGN_OR_RETURN(const v1::Layout layout, BuildLayout(spec));
  PlannedModel model;
  model.element_count = CountFragmentElements(layout)[0];
  model.layer_count = spec.layer_count();
  model.sequence_length = spec.sequence_length();
  model.spec = spec;
  return model;
}

absl::StatusOr<std::vector<int64_t>> FragmentElements(
    const PlannedModel& model, int64_t fragment_count,
    FragmentAssignment assignment) {
  if (fragment_count < 1 || fragment_count > model.layer_count) {
    return absl::InvalidArgumentError(
        absl::StrCat(fragment_count, " fragments are not between 1 and the ",
                     model.layer_count, " layers"));
  }
  if (!model.spec.has_value()) {
    return planner::EvenFragments(model.element_count, fragment_count);
  }
  ASSIGN_OR_RETURN(
      const v1::Layout layout,
      BuildLayout(*model.spec, static_cast<int32_t>(fragment_count),
                  assignment));
  return CountFragmentElements(layout);
}

planner::Exchange ExchangeOfRun(const v1::RunSpec& spec) {
  planner::Exchange exchange;
  exchange.inner_step_count = spec.schedule().inner_step_count();
  exchange.fragment_elements = CountFragmentElements(spec.layout());
  const v1::ScheduleSpec& schedule = spec.schedule();
  exchange.streaming =
      schedule.fragment_schedule() == v1::FRAGMENT_SCHEDULE_STAGGERED;
  exchange.overlap_step_count = schedule.overlap_step_count();
  // Other runs continue past the overlap only while a service is unavailable.
  if (IsStreaming(schedule) && schedule.timing() == v1::TIMING_ELASTIC) {
    exchange.ahead_step_count = schedule.max_ahead_steps();
  }
  exchange.up_codec = UpCodec(spec).id();
  exchange.down_codec = DownCodec(spec).id();
  exchange.is_synchronous = !IsAsync(schedule);
  // An elastic run gives slower islands fewer steps.
  exchange.awaits_slowest = schedule.timing() == v1::TIMING_STRICT;
  exchange.quorum = schedule.min_quorum();
  exchange.grace_seconds =
      static_cast<double>(schedule.grace_window().seconds()) +
      1e-9 * schedule.grace_window().nanos();
  exchange.header_trip_count = spec.durability() == v1::DURABILITY_ISLAND;
  exchange.merge_pass_count = NeedsVerdict(spec.outer().merge().rule()) ? 2 : 1;
  if (spec.schedule().sample_fraction() > 0) {
    exchange.sample_fraction = spec.schedule().sample_fraction();
  }
  return exchange;
}

absl::StatusOr<planner::Exchange> ExchangeOfRecipe(const Recipe& recipe,
                                                   const PlannedModel& model,
                                                   int64_t fragment_count) {
  planner::Exchange exchange = ExchangeOfRun(recipe.spec);
  if (fragment_count == 0) {
    fragment_count = CountFragments(model.layer_count, recipe.layers_a_fragment,
                                    recipe.spec.layout().fragment_count());
  }
  ASSIGN_OR_RETURN(exchange.fragment_elements,
                   FragmentElements(model, fragment_count, recipe.assignment));
  return exchange;
}

planner::Service MakeService(v1::Durability durability) {
  planner::Service service;
  // A local checkpoint is synced at every level. Contributions, PREPARED and
  // the coordinator's decisions are synced only at level `machine`.
  service.save_seconds = 0.025;
  const bool is_synced = durability != v1::DURABILITY_PROCESS &&
                         durability != v1::DURABILITY_ISLAND;
  service.commit_seconds = is_synced ? 0.03 : 0.015;
  return service;
}

planner::Service ServiceOfRecipe(planner::Service service,
                                 const Recipe& recipe) {
  service.commit_seconds = MakeService(recipe.spec.durability()).commit_seconds;
  return service;
}

planner::Flow MakeFlow(int32_t shard_count) {
  planner::Flow flow;
  flow.stream_count = server::kDefaultStreamCount;
  flow.shard_count = shard_count;
  flow.stripe_bytes_min = server::kStripeBytesMin;
  flow.window_bytes = server::kStreamWindowBytes;
  flow.up_chunk_bytes = rpc::ChunkSizer::kBytesMax;
  flow.down_chunk_bytes = rpc::ChunkSizer::kPullBytesMax;
  return flow;
}

absl::StatusOr<planner::Forecast> ForecastOfRun(
    const v1::RunSpec& spec, const IslandMeasurements& measured) {
  ASSIGN_OR_RETURN(const Scene scene, MakeScene(spec, measured));
  const planner::Exchange exchange = ExchangeOfRun(spec);
  return planner::Predict(exchange, scene.compute, scene.link,
                          planner::OfIslands(scene.service, exchange));
}

absl::StatusOr<std::vector<planner::Candidate>> ForecastOfRecipes(
    const v1::RunSpec& spec, const IslandMeasurements& measured,
    absl::Span<const Recipe> recipes) {
  ASSIGN_OR_RETURN(Scene scene, MakeScene(spec, measured));
  // Fragments that travel one by one pay it each time.
  scene.link.round_trip_seconds = measured.round_trip_seconds;
  ASSIGN_OR_RETURN(const PlannedModel model, ModelOfSpec(spec.model()));
  std::vector<planner::Candidate> candidates;
  for (const Recipe& recipe : recipes) {
    const absl::StatusOr<planner::Exchange> exchange =
        ExchangeOfRecipe(recipe, model);
    if (!exchange.ok()) continue;
    planner::Candidate candidate;
    candidate.preset = recipe.preset;
    const planner::Service service = ServiceOfRecipe(scene.service, recipe);
    ASSIGN_OR_RETURN(candidate.forecast,
                     planner::Predict(*exchange, scene.compute, scene.link,
                                      planner::OfIslands(service, *exchange)));
    candidates.push_back(std::move(candidate));
  }
  return candidates;
}

}  // namespace atl::worker
