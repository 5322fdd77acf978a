// Training speed on a device: tokens per second, and the share of the data
// sheet's peak (MFU).

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/cuda_check/report.h"
#include "worker/engine/model/model_config.h"
#include "worker/engine/ops/compute_type.h"
#include "worker/engine/ops/ops.h"
#include "worker/engine/ops/shapes.h"

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

// One layer's attention to the whole batch.
AttentionShape AttentionOf(const SpeedShape& shape);

// Operations of a step of R tokens: R (6 N + 12 L C T). N is the number of
// parameters without the table of the input embedding, whose rows are copied,
// not multiplied; a tied table stays, since the head multiplies by it. L layers
// of C channels attend to T tokens; a causal mask saves nothing in the formula.
// Source: PaLM (arXiv 2204.02311), appendix B, with torchtitan's N.
// tests/tools/gpu_speed.py counts PyTorch's operations in the same way.
double CountOperations(const SpeedShape& shape, int64_t parameter_count);

// Operations a second that NVIDIA's data sheet gives for the H100 and the H200
// (SXM), dense: 989e12 in bf16, 67e12 in f32 without TF32.
double DataSheetPeak(ComputeType compute);

// Parameters for the shape, for all of its measurements.
std::vector<float> DrawParameters(const SpeedShape& shape);

// A step is forward, backward, clipping and AdamW on random tokens. Reports the
// median of `steps` after a warm-up. `parameter_values` are
// those of DrawParameters.
absl::Status MeasureSpeed(const SpeedShape& shape, ComputeType compute,
                          int steps, const std::vector<float>& parameter_values,
                          Ops& ops, Report& report);

}  // namespace atl::engine::check
