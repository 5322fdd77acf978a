// The vectors of the round benchmark and their expected results.
//
// Element e of island i's outer gradient is (i + 1) * 1e-3 + (e mod 1000) *
// 1e-6, the same in every round; the parameters start at 0. So the mean and the
// Nesterov step are known, and every island checks what it pulls.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace atl::benchmarks {

inline constexpr float kLearningRate = 0.7f;
inline constexpr float kMomentum = 0.9f;

// A vector of f32, in huge pages if available, touched so that no measured pass
// has page faults. Never freed.
absl::Span<float> MakeVector(size_t element_count);

// Maps `element_count` elements of the file `path`, shared with other
// processes. Requires: the file exists, is writable and is long enough.
absl::Span<float> MapVector(const std::string& path, size_t element_count);

void FillGradient(int index, absl::Span<float> out);

// Relative tolerance of an element: rounding in f32; the remaining error of
// codecs with error feedback.
inline constexpr double kExact = 1e-5;
inline constexpr double kEncoded = 0.02;

// Checks every 997th element of `parameters` after `round_count` rounds of
// `island_count` islands. Returns "" or the fault.
std::string CheckParameters(absl::Span<const float> parameters,
                            int island_count, int64_t round_count,
                            double tolerance = kExact);

}  // namespace atl::benchmarks
