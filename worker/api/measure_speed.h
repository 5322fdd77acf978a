// Measures the speed at which this machine would train a run, by a few steps of
// a small model like the run's.
//
// Thread-safe.

#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/run.pb.h"

namespace atl::worker {

// Floating-point operations of a training step per token: 6 for each parameter
// that multiplies it, and 12 L T H for the attention (arXiv 2204.02311,
// appendix B). Pure. INVALID_ARGUMENT: as MakeModelConfig.
absl::StatusOr<double> CountFlopsPerToken(const v1::ModelSpec& model);

// A run of a model like `run`'s whose step takes about 5e9 operations and whose
// training takes some 100 MB. Pure.
// INVALID_ARGUMENT: the model is external, or not one that we know.
absl::StatusOr<v1::RunSpec> MakeSampleRun(const v1::RunSpec& run);

// Tokens per second on the CPU with `thread_count` threads. It trains the
// sample for about `time_max`, at least a step and at most 100, and scales its
// speed by the operations per token. A model of matrices that are larger than
// the sample's is usually a little faster. Ends early once `stopped` is true.
// INVALID_ARGUMENT: as MakeSampleRun. CANCELLED: stopped before the first step.
// Others as engine::Trainer.
absl::StatusOr<double> MeasureTokensPerSecond(
    const v1::RunSpec& run, int thread_count, absl::Duration time_max,
    const std::function<bool()>& stopped);

}  // namespace atl::worker
