// The cost of a run, before and while it runs: the public interface of this
// folder (forecast.h has the formula, preset.h the presets). Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"
#include "worker/planner/forecast.h"
#include "worker/planner/model_spec.h"
#include "worker/planner/preset.h"

namespace atl::worker {

struct PlannedModel {
  int64_t element_count = 0;
  int64_t layer_count = 0;
  int64_t sequence_length = 0;  // 0: unknown.
  std::optional<v1::ModelSpec> spec;
};

// A model known only by its size. `layer_count` 0: 24 layers at 1e9 elements,
// growing with the cube root, as usual (48 at 1e10, 108 at 1e11).
// INVALID_ARGUMENT: no elements, or fewer elements than layers.
absl::StatusOr<PlannedModel> ModelOfSize(int64_t element_count,
                                         int64_t layer_count);

// INVALID_ARGUMENT: as BuildLayout.
absl::StatusOr<PlannedModel> ModelOfSpec(const v1::ModelSpec& spec);

// Elements of each of `fragment_count` fragments, in [1, layers]: by layers if
// the model's shape is known, otherwise even parts.
absl::StatusOr<std::vector<int64_t>> FragmentElements(
    const PlannedModel& model, int64_t fragment_count,
    FragmentAssignment assignment);

// The exchange of a run of `spec`, whose layout must be complete.
planner::Exchange ExchangeOfRun(const v1::RunSpec& spec);

// A preset and its run file: the meaning of `preset = "streaming"` in a file.
struct Recipe {
  const planner::Preset* preset = nullptr;
  v1::RunSpec spec;  // Without its layout's tensors.
  // CountFragments' argument, with the spec's layout.fragment_count.
  int64_t layers_a_fragment = 0;
  FragmentAssignment assignment = FragmentAssignment::kStrided;
};

// The exchange of a run of `model` whose run file has only the recipe's preset
// and [model]. `fragment_count` above 0 replaces the recipe's.
// INVALID_ARGUMENT: the model has fewer layers than fragments.
absl::StatusOr<planner::Exchange> ExchangeOfRecipe(const Recipe& recipe,
                                                   const PlannedModel& model,
                                                   int64_t fragment_count = 0);

// This version's fixed costs of a decision and a local checkpoint, at a
// durability level. They are estimates from a trace of rounds on two cores and
// a local disk (tests/benchmarks/results/slow_link.md). A decision is
// everything from the last byte of a contribution at a shard to the commit's
// departure.
planner::Service MakeService(v1::Durability durability);

// `service` with the commit time of the recipe's durability.
planner::Service ServiceOfRecipe(planner::Service service,
                                 const Recipe& recipe);

// Flow of this version's transfers with `shard_count` (>= 1) servers.
planner::Flow MakeFlow(int32_t shard_count);

// Bytes, and the seconds of the calls that moved them.
struct Measured {
  int64_t bytes = 0;
  double seconds = 0;
};

// An island's measurements of itself and its link.
struct IslandMeasurements {
  double tokens_per_second = 0;  // In training.
  Measured pushed, pulled;       // Payload bytes.
  // f32 bytes of the outer gradients that were computed and saved.
  Measured contributed;
  double round_trip_seconds = 0;  // To the coordinator and back; 0: unknown.
};

// The forecast for a run of `spec` on that link, with the run's fewest islands,
// all as fast as this one, and MakeService's servers. Measured transfers
// already include round trips and window waits, contributions their local
// checkpoint. FAILED_PRECONDITION: the speed, a push or a pull is not measured
// yet.
absl::StatusOr<planner::Forecast> ForecastOfRun(
    const v1::RunSpec& spec, const IslandMeasurements& measured);

// The same for each of `recipes`, in order: `spec` gives model, batch and
// islands, the recipe all else. Omits recipes that need more layers than the
// model has. FAILED_PRECONDITION: as ForecastOfRun.
absl::StatusOr<std::vector<planner::Candidate>> ForecastOfRecipes(
    const v1::RunSpec& spec, const IslandMeasurements& measured,
    absl::Span<const Recipe> recipes);

}  // namespace atl::worker
