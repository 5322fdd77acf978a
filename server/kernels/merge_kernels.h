// The element-wise operations on a contribution: the check on arrival and the
// weighted sum, as plain definitions; loop_table.h has the vectorised ones.
// Pure. Thread-safe. No allocation.

#pragma once

#include <cmath>
#include <cstdint>

namespace atl::kernels {

// Lanes of the sum in CheckAndNorm: element i goes to lane i % kNormLanes, and
// the lanes are added in order. Fixed, so that every CPU gives the same bits.
constexpr int kNormLanes = 16;

// An element at any alignment, such as within a received message.
typedef float UnalignedF32 __attribute__((aligned(1)));

struct NormResult {
  double sum_of_squares = 0;  // Valid only if `finite`.
  bool finite = true;         // False if an element is NaN or infinite.
};

// sum = weight * x, shape [n].
template <typename T>
void ScalePlain(int64_t n, T weight, const T* x, T* sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] = weight * x[i];
}

// sum = sum + weight * x, shape [n]: multiply, round, add, round.
template <typename T>
void AccumulatePlain(int64_t n, T weight, const T* x, T* sum) {
  for (int64_t i = 0; i < n; ++i) sum[i] = sum[i] + weight * x[i];
}

template <typename T>
NormResult CheckAndNormPlain(int64_t n, const T* x) {
  double lanes[kNormLanes] = {};
  NormResult result;
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) result.finite = false;
    const double value = static_cast<double>(x[i]);
    lanes[i % kNormLanes] += value * value;
  }
  for (const double lane : lanes) result.sum_of_squares += lane;
  return result;
}

template <typename T>
bool AllFinitePlain(int64_t n, const T* x) {
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return false;
  }
  return true;
}

}  // namespace atl::kernels
