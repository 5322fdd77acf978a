// From a run's messages to the engine's options, and back.
//
// Pure. Thread-safe.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/run.pb.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/trainer.h"

namespace atl::worker {

// How layers are dealt to P fragments. The token embedding always goes with
// fragment 0, the last norm and the output head with fragment P - 1.
enum class FragmentAssignment {
  // Layer l belongs to fragment l mod P: each fragment is spread over the depth
  // of the model (arXiv 2501.18512, section 2.2).
  kStrided,
  // Neighbouring layers, cut so that the fragment with most bytes has as few as
  // can be: every push takes about as long.
  kBalanced,
};

// The engine's shape of `model`.
//
// INVALID_ARGUMENT: the architecture is unknown, or a size is out of range.
absl::StatusOr<engine::ModelConfig> MakeModelConfig(const v1::ModelSpec& model);

// "strided" or "balanced": how run files call an assignment.
//
// INVALID_ARGUMENT: it is neither.
absl::StatusOr<FragmentAssignment> ParseFragmentAssignment(
    absl::string_view name);

// How many fragments a model of `layer_count` (>= 1) layers has where
// `layers_a_fragment` of them make one, the last one perhaps fewer, but no more
// than `fragment_count` (0: no bound). Where `layers_a_fragment` is 0 it is
// `fragment_count`, or 1, whatever the layers: BuildLayout tells whether there
// are enough.
int32_t CountFragments(int64_t layer_count, int64_t layers_a_fragment,
                       int32_t fragment_count);

// The layout of `model`: its parameters in canonical order with their classes
// and first values, dealt to fragments.
//
// INVALID_ARGUMENT: as MakeModelConfig; or fragment_count is not in
// [1, layers].
absl::StatusOr<v1::Layout> BuildLayout(
    const v1::ModelSpec& model, int32_t fragment_count = 1,
    FragmentAssignment assignment = FragmentAssignment::kStrided);

// What trains a run of `spec` on this machine.
//
// INVALID_ARGUMENT: as MakeModelConfig; the layout's tensors are not the
// model's; an optimizer's option is out of range.
absl::StatusOr<engine::TrainerOptions> MakeTrainerOptions(
    const v1::RunSpec& spec, int thread_count);

}  // namespace atl::worker
