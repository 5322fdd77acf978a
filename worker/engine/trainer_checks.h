// Checks of a Trainer's options and tokens. Pure.

#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/engine/trainer.h"

namespace atl::engine {

// INVALID_ARGUMENT: an option is out of range.
absl::Status ValidateTrainerOptions(const TrainerOptions& options);

// INVALID_ARGUMENT: `inputs` and `targets` are not n >= 1 whole sequences each,
// or a token is not in [0, V).
absl::Status ValidateWindows(const TrainerOptions& options,
                             absl::Span<const int32_t> inputs,
                             absl::Span<const int32_t> targets);

// INVALID_ARGUMENT: `sequence_count`, of a step, exceeds batch_size.
absl::Status ValidateStepSize(const TrainerOptions& options,
                              int64_t sequence_count);

// INTERNAL, NotFinite: a step's `value`, its `what`, is not finite.
absl::Status CheckFinite(absl::string_view what, double value);

// INVALID_ARGUMENT: there are not 1 to T tokens, or one is not in [0, V).
absl::Status ValidatePrefix(const TrainerOptions& options,
                            absl::Span<const int32_t> tokens);

}  // namespace atl::engine
