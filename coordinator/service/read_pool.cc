#include "coordinator/service/read_pool.h"

#include <utility>

#include "base/status/refusal.h"
#include "base/status/status_macros.h"

namespace atl::coordinator {

ReadPool::ReadPool(int thread_count, const WaitingCalls::Bounds& bounds)
    : waiting_(bounds) {
  for (int i = 0; i < thread_count; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

ReadPool::~ReadPool() { Stop(); }

absl::Status ReadPool::Run(const CallOrigin& origin,
                           std::function<void(const absl::Status&)> read) {
  MutexLock lock(&mutex_);
  if (stopping_) {
    return Refuse(absl::StatusCode::kUnavailable, "STOPPING",
                  "the coordinator is stopping: call again");
  }
  RETURN_IF_ERROR(waiting_.Admit(origin));
  reads_.push_back({origin, /*is_counted=*/true, std::move(read)});
  changed_.Signal();
  return absl::OkStatus();
}

void ReadPool::RunOwn(std::function<void()> read) {
  MutexLock lock(&mutex_);
  if (stopping_) return;
  reads_.push_front(
      {{},
       /*is_counted=*/false,
       [read = std::move(read)](const absl::Status&) { read(); }});
  changed_.Signal();
}

void ReadPool::Stop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.SignalAll();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void ReadPool::Work() {
  while (true) {
    Read read;
    {
      MutexLock lock(&mutex_);
      while (reads_.empty() && !stopping_) changed_.Wait(&mutex_);
      if (reads_.empty()) return;
      read = std::move(reads_.front());
      reads_.pop_front();
    }
    const bool is_gone = read.origin.is_gone && read.origin.is_gone();
    read.run(is_gone ? absl::CancelledError("the caller is gone")
                     : absl::OkStatus());
    if (!read.is_counted) continue;
    MutexLock lock(&mutex_);
    waiting_.Release(read.origin);
  }
}

}  // namespace atl::coordinator
