#include "coordinator/service/read_pool.h"

#include <utility>

#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/sync/lower_priority.h"

namespace atl::coordinator {

namespace {

// Heartbeats come before reads if they share a core.
constexpr int kNiceness = 10;

}  // namespace

class ReadPool::Count {
 public:
  explicit Count(const WaitingCalls::Bounds& bounds) : waiting_(bounds) {}

  absl::Status Admit(const CallOrigin& origin) {
    MutexLock lock(&mutex_);
    return waiting_.Admit(origin);
  }
  void Release(const CallOrigin& origin) {
    MutexLock lock(&mutex_);
    waiting_.Release(origin);
  }

 private:
  Mutex mutex_;
  WaitingCalls waiting_ ABSL_GUARDED_BY(mutex_);
};

ReadPool::ReadPool(int thread_count, const WaitingCalls::Bounds& bounds)
    : count_(std::make_shared<Count>(bounds)) {
  for (int i = 0; i < thread_count; ++i) {
    threads_.emplace_back([this] { Work(); });
  }
}

ReadPool::~ReadPool() { Stop(); }

absl::StatusOr<ReadPool::Held> ReadPool::Admit(const CallOrigin& origin) {
  RETURN_IF_ERROR(count_->Admit(origin));
  return Held(nullptr, [count = count_, origin](const void*) {
    count->Release(origin);
  });
}

absl::Status ReadPool::Run(const CallOrigin& origin, Held held,
                           ReadFunction read) {
  MutexLock lock(&mutex_);
  if (stopping_) {
    return Refuse(absl::StatusCode::kUnavailable, "STOPPING",
                  "the coordinator is stopping: call again");
  }
  reads_.push_back({origin, std::move(held), std::move(read)});
  changed_.Signal();
  return absl::OkStatus();
}

absl::Status ReadPool::Run(const CallOrigin& origin, ReadFunction read) {
  ASSIGN_OR_RETURN(Held held, Admit(origin));
  return Run(origin, std::move(held), std::move(read));
}

void ReadPool::RunOwn(std::function<void()> read) {
  MutexLock lock(&mutex_);
  if (stopping_) return;
  own_.push_back(
      {{}, nullptr, [read = std::move(read)](const absl::Status&, Held) {
         read();
       }});
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
  LowerPriority(kNiceness);
  while (true) {
    Read read;
    {
      MutexLock lock(&mutex_);
      while (own_.empty() && reads_.empty() && !stopping_) {
        changed_.Wait(&mutex_);
      }
      std::deque<Read>& from = own_.empty() ? reads_ : own_;
      if (from.empty()) return;
      read = std::move(from.front());
      from.pop_front();
    }
    read.run(read.origin.gone() ? absl::CancelledError("the caller is gone")
                                : absl::OkStatus(),
             std::move(read.held));
  }
}

}  // namespace atl::coordinator
