// What a run would cost here, before and while it runs: the door to
// this folder (forecast.h has the formula, preset.h the presets).
//
// Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"
#include "worker/planner/forecast.h"
#include "worker/planner/model_spec.h"
#include "worker/planner/preset.h"

namespace atl::worker {

// A model as the planner sees it.
struct PlannedModel {
  int64_t element_count = 0;
  int64_t layer_count = 0;
  int64_t sequence_length = 0;  // 0: not known.
  std::optional<v1::ModelSpec> spec;
};

// A model of which no more than its size is known. `layer_count` 0 takes as
// many as models of that size have: 24 at 1e9 elements, growing with the cube
// root, as 48 at 1e10 and 108 at 1e11 do.
//
// INVALID_ARGUMENT: no elements, or fewer than layers.
absl::StatusOr<PlannedModel> ModelOfSize(int64_t element_count,
                                         int64_t layer_count);

// The model of `spec`.
//
// INVALID_ARGUMENT: as BuildLayout.
absl::StatusOr<PlannedModel> ModelOfSpec(const v1::ModelSpec& spec);

// Elements of each of `fragment_count` fragments, in [1, layers]: of layers as
// they are dealt, if the model's shape is known; else even parts.
absl::StatusOr<std::vector<int64_t>> FragmentElements(
    const PlannedModel& model, int64_t fragment_count,
    FragmentAssignment assignment);

// How a run of `spec`, with its layout complete, exchanges.
planner::Exchange ExchangeOfRun(const v1::RunSpec& spec);

// A preset and its run file: what `preset = "streaming"` means in a file.
struct Recipe {
  const planner::Preset* preset = nullptr;
  v1::RunSpec spec;  // But for the tensors of its layout.
  // Fragments of a model of other layers: CountFragments with these and with
  // the spec's layout.fragment_count.
  int64_t layers_a_fragment = 0;
  FragmentAssignment assignment = FragmentAssignment::kStrided;
};

// How a run of `model` exchanges whose file says no more than the recipe's
// preset and its [model]. `fragment_count` above 0 is in place of the recipe's.
//
// INVALID_ARGUMENT: the model has fewer layers than it would have fragments.
absl::StatusOr<planner::Exchange> ExchangeOfRecipe(const Recipe& recipe,
                                                   const PlannedModel& model,
                                                   int64_t fragment_count = 0);

// What services and islands of this version take, beside bytes, for a decision
// and for a SAVE at a level of durability: estimates from a trace of rounds on
// two cores and a local disk (tests/benchmarks/results/slow_link.md). A
// decision is all between the last byte of a contribution at a shard and the
// commit's way to islands.
planner::Service MakeService(v1::Durability durability);

// `service` with what a commit takes at the recipe's own durability.
planner::Service ServiceOfRecipe(planner::Service service,
                                 const Recipe& recipe);

// How transfers of this version flow to and from `shard_count` (>= 1) servers.
planner::Flow MakeFlow(int32_t shard_count);

// Bytes and the seconds of the calls that moved them.
struct Measured {
  int64_t bytes = 0;
  double seconds = 0;
};

// What an island has seen of itself and of its link.
struct IslandMeasurements {
  double tokens_per_second = 0;  // While training.
  Measured pushed, pulled;       // Payload.
  // f32 bytes of the outer gradients that were made and saved.
  Measured contributed;
  double round_trip_seconds = 0;  // To the coordinator and back; 0: not known.
};

// The forecast for a run of `spec` on that link, with the run's fewest islands,
// all as fast as this one, and with MakeService for the servers. Transfers
// measured whole hold their round trips and what streams stand for already, and
// contributions their SAVE.
//
// FAILED_PRECONDITION: the speed, a push or a pull was not measured yet.
absl::StatusOr<planner::Forecast> ForecastOfRun(
    const v1::RunSpec& spec, const IslandMeasurements& measured);

// The same for each of `recipes`, in their order, with the model, the batch and
// the islands of `spec` and all else as the recipe has it. One that this model
// has too few layers for is left out.
//
// FAILED_PRECONDITION: as ForecastOfRun.
absl::StatusOr<std::vector<planner::Candidate>> ForecastOfRecipes(
    const v1::RunSpec& spec, const IslandMeasurements& measured,
    absl::Span<const Recipe> recipes);

}  // namespace atl::worker
