// Samples a token. Pure: the random number is the caller's. Thread-safe.

#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace atl::engine {

// Draws a token from softmax(`logits` / `temperature`) by inverting its
// distribution at `uniform` in [0, 1), with f64 sums from the lowest index.
// `temperature` <= 0 takes the largest logit, the lowest index among equals.
// `logits` must not be empty. Non-finite values are never drawn; 0 if all are.
int32_t SampleToken(absl::Span<const float> logits, double temperature,
                    double uniform);

// The `counter`-th number in [0, 1) of the stream `seed`: SplitMix64 of both.
double CounterUniform(uint64_t seed, uint64_t counter);

}  // namespace atl::engine
