// Samples a token from logits. Pure: the random number comes from the caller.
// Thread-safe.

#ifndef WORKER_ENGINE_SAMPLING_H_
#define WORKER_ENGINE_SAMPLING_H_

#include <cstdint>

#include "absl/types/span.h"

namespace atl::engine {

// Draws a token from softmax(`logits` / `temperature`) by inverting its
// distribution at `uniform` in [0, 1). Sums run in f64 from the lowest index.
// `temperature` <= 0 takes the largest logit, the lowest index among equals.
// `logits` must not be empty. Non-finite values are never drawn; if all are
// non-finite, returns 0.
int32_t SampleToken(absl::Span<const float> logits, double temperature,
                    double uniform);

// The `counter`-th number in [0, 1) of the stream `seed`: SplitMix64 of both.
double CounterUniform(uint64_t seed, uint64_t counter);

}  // namespace atl::engine

#endif  // WORKER_ENGINE_SAMPLING_H_
