#include "worker/engine/parallel/rank_threads.h"

#include <utility>

namespace atl::engine {

RankThreads::RankThreads(int count) {
  for (int i = 0; i < count; ++i) {
    threads_.emplace_back([this, i] { Loop(i); });
  }
}

RankThreads::~RankThreads() {
  {
    MutexLock lock(&mutex_);
    is_ending_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) thread.join();
}

std::vector<absl::Status> RankThreads::Run(
    absl::FunctionRef<absl::Status(int)> f) {
  MutexLock lock(&mutex_);
  results_.assign(threads_.size(), absl::OkStatus());
  task_ = &f;
  ++task_number_;
  running_count_ = static_cast<int>(threads_.size());
  changed_.SignalAll();
  while (running_count_ > 0) changed_.Wait(&mutex_);
  task_ = nullptr;
  return std::move(results_);
}

void RankThreads::Loop(int index) {
  int64_t done = 0;
  while (true) {
    const absl::FunctionRef<absl::Status(int)>* task = nullptr;
    {
      MutexLock lock(&mutex_);
      while (task_number_ == done && !is_ending_) changed_.Wait(&mutex_);
      if (task_number_ == done) return;
      done = task_number_;
      task = task_;
    }
    absl::Status status = (*task)(index);
    MutexLock lock(&mutex_);
    results_[index] = std::move(status);
    if (--running_count_ == 0) changed_.SignalAll();
  }
}

}  // namespace atl::engine
