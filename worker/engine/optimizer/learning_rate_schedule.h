// The learning rate as a function of the inner step. Pure. Thread-compatible.

#pragma once

#include <cstdint>

namespace atl::engine {

// Linear warm-up, then a cosine down to a fraction of the peak. With w =
// warmup_step_count, n = total_step_count, f = final_fraction, at step s:
//
//   peak * min(1, (s + 1) / w)
//        * (f + (1 - f) * (1 + cos(pi * min(1, max(0, s - w) / (n - w)))) / 2)
struct LearningRateSchedule {
  double peak = 1e-3;             // > 0.
  int64_t warmup_step_count = 0;  // >= 0; 0 is no warm-up.
  int64_t total_step_count = 0;   // Planned steps; 0 never decays.
  double final_fraction = 0.1;    // In [0, 1]; 1 keeps the peak.
};

// The rate at `step` >= 0, in f64. It stays constant after total_step_count.
double LearningRateAt(const LearningRateSchedule& schedule, int64_t step);

// A factor <= 1 for the first steps after the optimizer is reset during a run:
// (k + 1) / `warmup_step_count` for the k-th step, then 1.
double RestartWarmupFactor(int64_t steps_since_restart,
                           int64_t warmup_step_count);

}  // namespace atl::engine
