// A run's messages to the engine's options, and back. Pure. Thread-safe.

#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/trainer.h"

namespace atl::worker {

// How layers are assigned to P fragments. Fragment 0 always has the token
// embedding, fragment P - 1 the last norm and the output head.
enum class FragmentAssignment {
  // Layer l belongs to fragment l mod P, so each fragment spans the model's
  // depth (arXiv 2501.18512, section 2.2).
  kStrided,
  // Adjacent layers, with the smallest possible largest fragment: pushes take
  // similar times.
  kBalanced,
};

// INVALID_ARGUMENT: the architecture is unknown or external, or a size is out
// of range.
absl::StatusOr<engine::ModelConfig> MakeModelConfig(const v1::ModelSpec& model);

// Parses a run file's "strided" or "balanced". INVALID_ARGUMENT: neither.
absl::StatusOr<FragmentAssignment> ParseFragmentAssignment(
    absl::string_view name);

// Fragments of a model of `layer_count` (>= 1) layers: `layers_a_fragment`
// layers each (the last may have fewer), but at most `fragment_count` fragments
// (0: no limit). If `layers_a_fragment` is 0, returns `fragment_count`, or 1 if
// that is 0 too. BuildLayout checks that there are enough layers.
int32_t CountFragments(int64_t layer_count, int64_t layers_a_fragment,
                       int32_t fragment_count);

// The layout of `model`: its parameters in canonical order with classes and
// first values, assigned to fragments. INVALID_ARGUMENT: as MakeModelConfig, or
// fragment_count is not in [1, layers].
absl::StatusOr<v1::Layout> BuildLayout(
    const v1::ModelSpec& model, int32_t fragment_count = 1,
    FragmentAssignment assignment = FragmentAssignment::kStrided);

// Options of a run's trainer on this machine. INVALID_ARGUMENT: as
// MakeModelConfig; the layout's tensors are not the model's; an optimizer's
// option is out of range.
absl::StatusOr<engine::TrainerOptions> MakeTrainerOptions(
    const v1::RunSpec& spec, int thread_count);

}  // namespace atl::worker
