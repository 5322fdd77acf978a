#include "worker/island/work_threads.h"

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "base/sync/lower_priority.h"

namespace atl::worker {
namespace {

// Weighs a tenth of a thread of the trainer.
constexpr int kNiceness = 10;

}  // namespace

WorkThreads::WorkThreads(int thread_count, bool yields) : pool_(thread_count) {
  if (!yields) return;
  pool_.ParallelFor(thread_count, [](int64_t, int thread) {
    if (thread != 0) LowerPriority(kNiceness);  // Thread 0 is the caller.
  });
}

codec::Loop WorkThreads::loop() {
  return [this](int64_t count, absl::FunctionRef<void(int64_t)> visit) {
    pool_.ParallelFor(count, [&](int64_t i, int) { visit(i); });
  };
}

}  // namespace atl::worker
