// Work on the items of a list at the same time.

#pragma once

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"

namespace atl {

// Calls visit(i) once for each i of [0, count), in up to `thread_count_max`
// (> 0) threads, and returns when all calls have returned. For calls that wait,
// not for ones that compute.
inline void ForEachAtOnce(int count, int thread_count_max,
                          absl::FunctionRef<void(int)> visit) {
  std::atomic<int> next = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < std::min(count, thread_count_max); ++i) {
    threads.emplace_back([&] {
      for (int at = next++; at < count; at = next++) visit(at);
    });
  }
}

}  // namespace atl
