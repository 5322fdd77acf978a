// Training speed on a device: tokens a second and the share of the peak that
// products reach in the same run (MFU).

#ifndef WORKER_ENGINE_CUDA_CHECK_SPEED_H_
#define WORKER_ENGINE_CUDA_CHECK_SPEED_H_

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

struct SpeedShape {
  std::string name;
  ModelConfig config;
  int64_t batch = 1;  // Sequences of config.sequence_length_max.
};

// "124m" (GPT-2 small's size in Llama's shape) and "1b" (TinyLlama's).
std::vector<SpeedShape> SpeedShapes();

// Operations of a step: 6 P R + 12 L C T R for P parameters and R tokens, as
// tests/benchmarks/engine counts them.
double CountOperations(const SpeedShape& shape, int64_t parameter_count);

// Steps are forward, backward, clipping and AdamW on random tokens; the median
// of `steps`, after some to warm up, counts. `measure_peak` gives operations a
// second of products (peak.h); it is asked before and after.
absl::Status MeasureSpeed(
    const SpeedShape& shape, ComputeType compute, int steps,
    absl::FunctionRef<absl::StatusOr<double>()> measure_peak, Ops& ops,
    Report& report);

}  // namespace atl::engine::check

#endif  // WORKER_ENGINE_CUDA_CHECK_SPEED_H_
