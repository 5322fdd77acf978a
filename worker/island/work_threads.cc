#include "worker/island/work_threads.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace atl::worker {
namespace {

// Weighs a tenth of a thread of the trainer.
constexpr int kNiceness = 10;

}  // namespace

WorkThreads::WorkThreads(int thread_count, bool yields) : pool_(thread_count) {
  if (!yields) return;
  pool_.ParallelFor(thread_count, [](int64_t, int thread) {
    // Thread 0 is the caller. Without the right they compete.
    if (thread == 0) return;
    const auto id = static_cast<id_t>(::syscall(SYS_gettid));
    (void)::setpriority(PRIO_PROCESS, id, kNiceness);
  });
}

codec::Loop WorkThreads::loop() {
  return [this](int64_t count, absl::FunctionRef<void(int64_t)> visit) {
    pool_.ParallelFor(count, [&](int64_t i, int) { visit(i); });
  };
}

}  // namespace atl::worker
