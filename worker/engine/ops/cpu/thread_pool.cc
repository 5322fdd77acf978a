#include "worker/engine/ops/cpu/thread_pool.h"

#include <immintrin.h>

namespace atl::engine {
namespace {

// About 100 us: longer than the gaps between a step's loops (sleeping there
// costs small models a tenth of their speed), short for a time slice.
constexpr int kSpins = 2000;

// Spins, then sleeps, until `value` differs from `old`.
void WaitWhileEqual(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    _mm_pause();
  }
  while (value.load(std::memory_order_acquire) == old) {
    value.wait(old, std::memory_order_acquire);
  }
}

}  // namespace

ThreadPool::ThreadPool(int thread_count) {
  threads_.reserve(thread_count - 1);
  for (int thread = 1; thread < thread_count; ++thread) {
    threads_.emplace_back([this, thread] { Loop(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_ = true;
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(Function function, const void* context) {
  function_ = function;
  context_ = context;
  running_.store(static_cast<uint32_t>(threads_.size()),
                 std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  function(context, 0);
  for (uint32_t left = running_.load(std::memory_order_acquire); left != 0;
       left = running_.load(std::memory_order_acquire)) {
    WaitWhileEqual(running_, left);
  }
}

void ThreadPool::Loop(int thread) {
  uint32_t seen = 0;
  for (;;) {
    WaitWhileEqual(epoch_, seen);
    ++seen;
    if (stopping_) return;
    function_(context_, thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      running_.notify_one();
    }
  }
}

}  // namespace atl::engine
