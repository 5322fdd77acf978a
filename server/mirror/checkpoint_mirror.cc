#include "server/mirror/checkpoint_mirror.h"

#include <algorithm>

#include "base/failpoint/failpoint.h"
#include "base/status/status_macros.h"
#include "base/sync/lower_priority.h"

namespace atl::server {
namespace {

constexpr int kNiceness = 19;

Waiting WithCancelled(Waiting waiting, const std::atomic<bool>& is_cancelled) {
  waiting.cancelled = [&is_cancelled] { return is_cancelled.load(); };
  return waiting;
}

}  // namespace

CheckpointMirror::CheckpointMirror(CheckpointMirrorOptions options)
    : options_(std::move(options)),
      waiting_(WithCancelled(options_.waiting, is_cancelled_)),
      throttle_(options_.bytes_per_second, waiting_),
      thread_([this] {
        LowerPriority(kNiceness);
        Run();
      }) {}

CheckpointMirror::~CheckpointMirror() {
  {
    MutexLock lock(&mutex_);
    is_stopping_ = true;
    is_cancelled_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void CheckpointMirror::Add(MirrorJob job) {
  MutexLock lock(&mutex_);
  Forget(GetKey(job));
  jobs_.push_back(std::move(job));
  changed_.SignalAll();
}

bool CheckpointMirror::Drop(const std::string& run_uid, int32_t shard) {
  const Key key(run_uid, shard);
  MutexLock lock(&mutex_);
  Forget(key);
  if (running_ != key) return true;
  is_cancelled_ = true;
  return false;
}

void CheckpointMirror::Forget(const Key& key) {
  std::erase_if(jobs_,
                [&](const MirrorJob& job) { return GetKey(job) == key; });
}

bool CheckpointMirror::IsWaiting(const Key& key) const {
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const MirrorJob& job) {
    return GetKey(job) == key;
  });
}

void CheckpointMirror::Run() {
  while (true) {
    MirrorJob job;
    {
      MutexLock lock(&mutex_);
      while (jobs_.empty() && !is_stopping_) changed_.Wait(&mutex_);
      if (is_stopping_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      running_ = GetKey(job);
      is_cancelled_ = false;
    }
    const absl::StatusOr<std::vector<MirroredPart>> parts = Upload(job);
    if (parts.ok()) {
      job.on_done(*parts);
    } else if (!is_cancelled_ && job.on_failed) {
      job.on_failed(parts.status());
    }
    MutexLock lock(&mutex_);
    // A Drop during on_failed counts.
    const bool fails = !parts.ok() && !is_cancelled_;
    if (fails && !IsWaiting(GetKey(job))) jobs_.push_back(std::move(job));
    job = {};  // Before Drop returns.
    running_.reset();
    changed_.SignalAll();
    if (fails) {
      changed_.AwaitWithTimeout(&mutex_, options_.retry_delay,
                                [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
                                  return is_stopping_;
                                });
    }
  }
}

absl::StatusOr<std::vector<MirroredPart>> CheckpointMirror::Upload(
    const MirrorJob& job) {
  std::vector<MirroredPart> parts;
  if (job.parts.empty()) return parts;
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectStore> store,
                   options_.open(waiting_));
  // A killed server left these. No other process writes the shard's parts.
  RETURN_IF_ERROR(
      store->RemoveUnfinished(mirror::ShardPrefix(job.place, job.shard)));
  for (const PartSource& source : job.parts) {
    failpoint::Hit("server.mirror_part.before");
    ASSIGN_OR_RETURN(MirroredPart part, UploadPart(*store, source, throttle_));
    failpoint::Hit("server.mirror_part.after");
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace atl::server
