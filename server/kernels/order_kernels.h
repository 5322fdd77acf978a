// The operations of robust merges on a tile of several contributions:
// element-wise sorting, and inner products, as plain definitions; loop_table.h
// has the vectorised ones. Pure. Thread-safe. No allocation.
//
//   n     elements of the tile, >= 0
//   rows  row_count arrays of shape [n], f32, finite, not overlapping

#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "server/kernels/merge_kernels.h"

namespace atl::kernels {

// The order of SortRows: by value, and -0 before +0. So equal values have equal
// bits, and the order of the rows does not change the result.
inline int32_t OrderKey(float value) {
  int32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

// Sorts every column: rows[0][i] <= rows[1][i] <= ...
inline void SortRowsPlain(int64_t n, int row_count, float* const* rows) {
  std::vector<float> column(row_count);
  for (int64_t i = 0; i < n; ++i) {
    for (int r = 0; r < row_count; ++r) column[r] = rows[r][i];
    std::sort(column.begin(), column.end(),
              [](float a, float b) { return OrderKey(a) < OrderKey(b); });
    for (int r = 0; r < row_count; ++r) rows[r][i] = column[r];
  }
}

// mean = (rows[0] + rows[1] + ...) / row_count, added from the left.
template <typename T>
void MeanOfRowsPlain(int64_t n, int row_count, const T* const* rows, T* mean) {
  for (int64_t i = 0; i < n; ++i) {
    T sum = rows[0][i];
    for (int r = 1; r < row_count; ++r) sum = sum + rows[r][i];
    mean[i] = sum / static_cast<T>(row_count);
  }
}

// products[r (r + 1) / 2 + s] = <rows[r], rows[s]> for s <= r, in f64, in lanes
// as CheckAndNorm, which <x, x> equals. A product of two f32 is exact in f64,
// so an FMA gives the same bits.
inline void ProductsPlain(int64_t n, int row_count, const float* const* rows,
                          double* products) {
  for (int r = 0; r < row_count; ++r) {
    for (int s = 0; s <= r; ++s) {
      double lanes[kNormLanes] = {};
      for (int64_t i = 0; i < n; ++i) {
        lanes[i % kNormLanes] +=
            static_cast<double>(rows[r][i]) * static_cast<double>(rows[s][i]);
      }
      double sum = 0;
      for (const double lane : lanes) sum += lane;
      *products++ = sum;
    }
  }
}

}  // namespace atl::kernels
