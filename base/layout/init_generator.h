// Version 0 of the parameters: the initial value of any element. Pure.
// Thread-safe.
//
// Counter-based: a value depends only on (seed, tensor, element), so any
// sharding and any thread count give the same parameters. The same bits on
// every CPU: only IEEE 754 additions, multiplications, divisions and square
// roots in f64, never contracted, and no libm function.
//
//   bits  Philox4x32-10 (Salmon et al., SC 2011), key = seed, counter =
//         (element low, element high, tensor, 0); its first two words
//   u     (k + 1/2) / 2^52 with k the upper 52 of these 64 bits: in (0, 1)
//   z     the normal quantile of u by Wichura's AS 241 (PPND16), relative error
//         about 1e-15
//   x     f32(standard deviation * z)

#pragma once

#include <cstdint>

#include "absl/types/span.h"
#include "atoll/v1/run.pb.h"

namespace atl {

// Writes elements [first_element, first_element + out.size()) of the tensor
// with index `tensor` in the layout. Requires: RunLayout accepts `init`.
void GenerateInit(const v1::TensorInit& init, uint64_t seed, int32_t tensor,
                  int64_t first_element, absl::Span<float> out);

// The quantile of the standard normal distribution; 0 < u < 1.
double NormalQuantile(double u);

// The natural logarithm of a normal x > 0; absolute error below 1e-15.
double DeterministicLog(double x);

}  // namespace atl
