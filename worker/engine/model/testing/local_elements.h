// Copies between a rank's elements and a whole model's. Programs move spans
// (parallel/layout/rank_layout.h). Pure. Thread-safe.

#pragma once

#include <algorithm>
#include <cstdint>

#include "worker/engine/model/local_layout.h"

namespace atl::engine {

// Calls f(local_begin, global_begin, count) for each run of elements that is
// contiguous in both the rank's and the model's flat order.
template <typename F>
void ForEachRun(const LocalLayout& local_layout, F f) {
  for (const LocalParameter& parameter : local_layout.parameters) {
    for (const Rectangle& part : parameter.rectangles) {
      for (int64_t i = 0; i < part.row_count; ++i) {
        f(part.local_begin + i * part.local_stride,
          part.global_begin + i * part.global_stride, part.column_count);
      }
    }
  }
}

// local [layout.element_count] = this rank's part of `global`.
template <typename T>
void CutToLocal(const LocalLayout& local_layout, const T* global, T* local) {
  ForEachRun(local_layout, [&](int64_t to, int64_t from, int64_t count) {
    std::copy_n(global + from, count, local + to);
  });
}

// Writes `local` to its places in `global`, and nowhere else.
template <typename T>
void PutIntoGlobal(const LocalLayout& local_layout, const T* local, T* global) {
  ForEachRun(local_layout, [&](int64_t from, int64_t to, int64_t count) {
    std::copy_n(local + from, count, global + to);
  });
}

}  // namespace atl::engine
