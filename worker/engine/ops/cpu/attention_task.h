// Which part of an attention one task computes. Thread-safe.

#pragma once

#include <cstdint>

#include "worker/engine/ops/cpu/kernels.h"
#include "worker/engine/ops/shapes.h"

namespace atl::engine {

// Task `index` has sequence index / G and key/value head index mod G.
AttentionTask MakeTask(const AttentionShape& shape, int64_t index,
                       const float* qkv, float* out, float* log_sum);

}  // namespace atl::engine
