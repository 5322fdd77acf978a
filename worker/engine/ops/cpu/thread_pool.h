// A few threads that take fixed shares of a loop.
//
// Results must not depend on which thread runs an index. The caller is thread
// 0. Idle threads spin briefly and then sleep, so several islands can share a
// CPU. Thread-compatible: one loop at a time.

#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace atl::engine {

class ThreadPool {
 public:
  // Starts `thread_count` - 1 threads; `thread_count` >= 1.
  explicit ThreadPool(int thread_count);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  int thread_count() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls f(index, thread) for each index in [0, count) and waits for all. A
  // thread gets consecutive indices in rising order.
  template <typename F>
  void ParallelFor(int64_t count, const F& f) {
    const int64_t threads = thread_count();
    if (threads == 1 || count <= 1) {
      for (int64_t i = 0; i < count; ++i) f(i, 0);
      return;
    }
    auto share = [&](int thread) {
      const int64_t end = count * (thread + 1) / threads;
      for (int64_t i = count * thread / threads; i < end; ++i) f(i, thread);
    };
    using Share = decltype(share);
    Run([](const void* context,
           int thread) { (*static_cast<const Share*>(context))(thread); },
        &share);
  }

 private:
  using Function = void (*)(const void* context, int thread);

  // Calls function(context, t) on each thread t and waits for all.
  void Run(Function function, const void* context);
  void Loop(int thread);

  // Run writes these, then increments epoch_; then the threads read them.
  Function function_ = nullptr;
  const void* context_ = nullptr;
  bool stopping_ = false;

  alignas(64) std::atomic<uint32_t> epoch_{0};    // Loops started.
  alignas(64) std::atomic<uint32_t> running_{0};  // Threads still in the loop.
  std::vector<std::thread> threads_;
};

}  // namespace atl::engine
