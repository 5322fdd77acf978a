#include "base/rpc/caller_examiner.h"

#include <utility>

#include "base/sync/lower_priority.h"

namespace atl::rpc {
namespace {

constexpr int kNiceness = 10;

}  // namespace

CallerExaminer::CallerExaminer(CallerCheck& check) : check_(check) {
  examiner_ = std::thread([this] { ExamineAll(); });
  runner_ = std::thread([this] { RunAll(); });
}

CallerExaminer::~CallerExaminer() {
  {
    MutexLock lock(&mutex_);
    is_ending_ = true;
  }
  changed_.SignalAll();
  examiner_.join();
  {
    MutexLock lock(&mutex_);
    has_examined_all_ = true;
  }
  changed_.SignalAll();
  runner_.join();
}

bool CallerExaminer::Examine(const std::string& key,
                             std::shared_ptr<const grpc::AuthContext> peer,
                             std::function<void()> then) {
  {
    MutexLock lock(&mutex_);
    if (!waiting_.contains(key)) {
      if (keys_.size() >= kKeysMax) return false;
      keys_.push_back(key);
      waiting_[key].peer = std::move(peer);
    }
    waiting_[key].then.push_back(std::move(then));
  }
  changed_.SignalAll();
  return true;
}

void CallerExaminer::ExamineAll() {
  LowerPriority(kNiceness);
  for (;;) {
    std::string key;
    std::shared_ptr<const grpc::AuthContext> peer;
    {
      MutexLock lock(&mutex_);
      while (keys_.empty() && !is_ending_) changed_.Wait(&mutex_);
      if (keys_.empty()) return;
      key = keys_.front();
      peer = waiting_[key].peer;
    }
    // It remembers the answer, which the waiting calls ask for themselves.
    check_.CheckCertificate(*peer, key).IgnoreError();
    {
      MutexLock lock(&mutex_);
      for (std::function<void()>& then : waiting_[key].then) {
        ready_.push_back(std::move(then));
      }
      waiting_.erase(key);
      keys_.pop_front();
    }
    changed_.SignalAll();
  }
}

void CallerExaminer::RunAll() {
  for (;;) {
    std::function<void()> then;
    {
      MutexLock lock(&mutex_);
      while (ready_.empty() && !has_examined_all_) changed_.Wait(&mutex_);
      if (ready_.empty()) return;
      then = std::move(ready_.front());
      ready_.pop_front();
    }
    then();
  }
}

}  // namespace atl::rpc
