// What the checks train on, from a seed. Pure. Thread-compatible: the generator
// is the caller's.

#ifndef WORKER_ENGINE_CUDA_CHECK_RANDOM_INPUTS_H_
#define WORKER_ENGINE_CUDA_CHECK_RANDOM_INPUTS_H_

#include <cstdint>
#include <random>
#include <vector>

#include "worker/engine/model/parameter_layout.h"

namespace atl::engine::check {

// Normal with a deviation of 0.08 around what a parameter begins with (its
// constant, else 0), so that norms' scales are no ones and biases no zeros.
std::vector<float> RandomParameters(const ParameterLayout& layout,
                                    std::mt19937_64& random);

// Each of [0, vocab) is as likely.
std::vector<int32_t> RandomTokens(int64_t count, int64_t vocab,
                                  std::mt19937_64& random);

}  // namespace atl::engine::check

#endif  // WORKER_ENGINE_CUDA_CHECK_RANDOM_INPUTS_H_
