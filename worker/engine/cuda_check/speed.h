// Training speed on a device: tokens per second, and the share of the peak of
// products in the same run (MFU).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/engine/cuda_check/report.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/ops.h"

namespace atl::engine::check {

// The machine's monotonic clock.
double Seconds();

struct SpeedShape {
  std::string name;
  ModelConfig config;
  int64_t batch = 1;  // Sequences of config.sequence_length_max.
};

// "124m" (GPT-2 small's size in Llama's shape) and "1b" (TinyLlama's).
std::vector<SpeedShape> SpeedShapes();

// Operations of a step: 6 P R + 12 L C T R for P parameters and R tokens, as in
// tests/benchmarks/engine.
double CountOperations(const SpeedShape& shape, int64_t parameter_count);

// A step is forward, backward, clipping and AdamW on random tokens. Reports the
// median of `steps` after a warm-up. `measure_peak` (peak.h) runs before and
// after; the larger result counts.
absl::Status MeasureSpeed(
    const SpeedShape& shape, ComputeType compute, int steps,
    absl::FunctionRef<absl::StatusOr<double>()> measure_peak, Ops& ops,
    Report& report);

}  // namespace atl::engine::check
