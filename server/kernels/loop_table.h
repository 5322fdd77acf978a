// The vectorised loops of one instruction set: the same bits as the plain
// definitions of their names. Pure. Thread-safe. No allocation.

#pragma once

#include <cstdint>

#include "server/kernels/merge_kernels.h"
#include "server/kernels/order_kernels.h"
#include "server/kernels/outer_steps.h"

namespace atl::kernels {

struct LoopTable {
  using Array = InOut<float>;
  void (*sgd)(int64_t, float, const float*, Array);
  void (*momentum)(int64_t, float, float, const float*, Array, Array);
  void (*nesterov)(int64_t, float, float, const float*, Array, Array);
  void (*fed_adam)(int64_t, const AdaptiveConstants<float>&, const float*,
                   Array, Array, Array);
  void (*fed_yogi)(int64_t, const AdaptiveConstants<float>&, const float*,
                   Array, Array, Array);
  void (*fed_adagrad)(int64_t, const AdaptiveConstants<float>&, const float*,
                      Array, Array, Array);
  void (*delayed_nesterov)(int64_t, const DelayedConstants<float>&, bool,
                           const float*, Array, Array, Array);
  void (*scale)(int64_t, float, const float*, float*);
  void (*accumulate)(int64_t, float, const float*, float*);
  NormResult (*check_and_norm)(int64_t, const UnalignedF32*);
  bool (*all_finite)(int64_t, const float*);
  // Batcher's odd-even merge network over whole rows: n log^2(row_count) steps.
  void (*sort_rows)(int64_t, int, float* const*);
  // Requires: row_count >= 1.
  void (*mean_of_rows)(int64_t, int, const float* const*, float*);
  // The products have shape [row_count (row_count + 1) / 2].
  void (*products)(int64_t, int, const float* const*, double*);
};

// For the minimum CPU: AVX2 and FMA.
const LoopTable& Avx2Loops();
// Requires: HasAvx512().
const LoopTable& Avx512Loops();
// True if the CPU has AVX-512 F, BW, DQ and VL.
bool HasAvx512();
// The best loops that the CPU supports.
const LoopTable& BestLoops();

}  // namespace atl::kernels
