// Threads that run the same function concurrently, one per rank.
// Thread-compatible: one call at a time.

#pragma once

#include <cstdint>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/sync/mutex.h"

namespace atl::engine {

class RankThreads {
 public:
  explicit RankThreads(int count);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  // Calls f(i) on each thread i, waits for all, and returns their results.
  std::vector<absl::Status> Run(absl::FunctionRef<absl::Status(int)> f)
      ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Loop(int index) ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  CondVar changed_;
  const absl::FunctionRef<absl::Status(int)>* task_ ABSL_GUARDED_BY(mutex_) =
      nullptr;
  int64_t task_number_ ABSL_GUARDED_BY(mutex_) = 0;
  int running_count_ ABSL_GUARDED_BY(mutex_) = 0;
  bool is_ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<absl::Status> results_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;
};

}  // namespace atl::engine
