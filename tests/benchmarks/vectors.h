// The vectors of the round benchmark and what must come out of them.
//
// Element e of island i's outer gradient is (i + 1) * 1e-3 + (e mod 1000) *
// 1e-6, the same in every round; the parameters start at 0. So the mean and the
// Nesterov step are known, and every island checks what it received.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace atl::benchmarks {

inline constexpr float kLearningRate = 0.7f;
inline constexpr float kMomentum = 0.9f;

// A vector of f32 in huge pages where the system gives them, touched, so that
// no measured pass faults pages in. Never freed: it lives as long as the
// process.
absl::Span<float> MakeVector(size_t element_count);

// `element_count` elements of the file `path`, shared with whoever maps it too.
// Requires: the file is there, may be written, and is long enough.
absl::Span<float> MapVector(const std::string& path, size_t element_count);

// Fills `out` with island `index`'s outer gradient.
void FillGradient(int index, absl::Span<float> out);

// What an element may be off by, as a share of its value: rounding in f32, and
// what is left of the error of codecs with error feedback.
inline constexpr double kExact = 1e-5;
inline constexpr double kEncoded = 0.02;

// Holds `parameters` to what `round_count` rounds of `island_count` islands
// give, at every 997th element. Returns "" or what is wrong.
std::string CheckParameters(absl::Span<const float> parameters,
                            int island_count, int64_t round_count,
                            double tolerance = kExact);

}  // namespace atl::benchmarks
