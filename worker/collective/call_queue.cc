#include "worker/collective/call_queue.h"

namespace atl::collective {

class CallQueue::Entry {
 public:
  explicit Entry(Call call) : call_(std::move(call)) {}

  const Call& call() const { return call_; }

  void End(absl::Status status) {
    MutexLock lock(&mutex_);
    status_ = std::move(status);
    ended_ = true;
    condition_.SignalAll();
  }

  // No timeout: this call and all earlier ones end in bounded time.
  absl::Status Wait() {
    MutexLock lock(&mutex_);
    while (!ended_) condition_.Wait(&mutex_);
    // A move: ThreadSanitizer cannot see the reference counts of a Status.
    return std::move(status_);
  }

 private:
  const Call call_;
  Mutex mutex_;
  CondVar condition_;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
};

namespace {

template <typename Entry>
class EntryWork : public Pending::Work {
 public:
  explicit EntryWork(std::shared_ptr<Entry> entry) : entry_(std::move(entry)) {}
  absl::Status Wait() override { return entry_->Wait(); }

 private:
  const std::shared_ptr<Entry> entry_;
};

}  // namespace

CallQueue::~CallQueue() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    condition_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

absl::Status CallQueue::Run(const Call& call) {
  {
    MutexLock lock(&mutex_);
    while (!entries_.empty()) condition_.Wait(&mutex_);
  }
  return execute_(call);
}

Pending CallQueue::Start(Call call) {
  auto entry = std::make_shared<Entry>(std::move(call));
  if (!thread_.joinable()) thread_ = std::thread([this] { Loop(); });
  MutexLock lock(&mutex_);
  entries_.push_back(entry);
  condition_.SignalAll();
  return Pending(std::make_unique<EntryWork<Entry>>(std::move(entry)));
}

void CallQueue::Loop() {
  for (;;) {
    std::shared_ptr<Entry> entry;
    {
      MutexLock lock(&mutex_);
      while (entries_.empty() && !stopping_) condition_.Wait(&mutex_);
      if (entries_.empty()) return;
      entry = entries_.front();
    }
    absl::Status status = execute_(entry->call());
    {
      MutexLock lock(&mutex_);
      entries_.pop_front();
      condition_.SignalAll();
    }
    entry->End(std::move(status));
  }
}

}  // namespace atl::collective
