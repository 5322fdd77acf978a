// Random training inputs. Pure. Thread-compatible: callers own the generator.

#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "worker/engine/model/parameter_layout.h"

namespace atl::engine::check {

// Normal with deviation 0.08 around a parameter's initial constant, or 0. So
// norm scales are not all ones and biases not all zeros.
std::vector<float> RandomParameters(const ParameterLayout& layout,
                                    std::mt19937_64& random);

// Uniform in [0, vocab).
std::vector<int32_t> RandomTokens(int64_t count, int64_t vocab,
                                  std::mt19937_64& random);

}  // namespace atl::engine::check
