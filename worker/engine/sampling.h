// Picks a token from logits.
//
// Pure: the random number comes from the caller. Thread-safe.

#pragma once

#include <cstdint>

#include "absl/types/span.h"

namespace atl::engine {

// A token drawn from softmax(`logits` / `temperature`) by inverting its
// distribution at `uniform` in [0, 1); sums run in f64 from the lowest index.
// `temperature` <= 0 takes the largest logit, the lowest index among equals.
// `logits` must not be empty; values that are not finite count as never chosen,
// and if no value is finite the answer is 0.
int32_t SampleToken(absl::Span<const float> logits, double temperature,
                    double uniform);

// A number in [0, 1) that depends on nothing but the two arguments (SplitMix64
// of them): the `counter`-th number of the stream named by `seed`.
double CounterUniform(uint64_t seed, uint64_t counter);

}  // namespace atl::engine
