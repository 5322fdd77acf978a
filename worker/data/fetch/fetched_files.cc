#include "worker/data/fetch/fetched_files.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/obs/log.h"

namespace atl::worker {

FetchedFiles::FetchedFiles(std::vector<ManifestFile> files,
                           std::unique_ptr<ShardCache> cache,
                           DownloaderOptions options, std::stop_token stop)
    : files_(std::move(files)),
      cache_(std::move(cache)),
      downloader_(Complete(std::move(options))),
      thread_([this] { Run(); }),
      on_stop_(std::move(stop), [this] { Stop(); }) {}

FetchedFiles::~FetchedFiles() {
  Stop();
  thread_.join();
}

DownloaderOptions FetchedFiles::Complete(DownloaderOptions options) {
  options.cache = cache_.get();
  options.cancelled = [this] {
    MutexLock lock(&mutex_);
    return IsCancelled();
  };
  options.pause = [this](absl::Duration duration) {
    MutexLock lock(&mutex_);
    changed_.AwaitWithTimeout(&mutex_, duration,
                              [this] { return IsCancelled(); });
  };
  return options;
}

void FetchedFiles::Stop() {
  MutexLock lock(&mutex_);
  is_stopped_ = true;
  changed_.SignalAll();
}

// A file that is needed now interrupts one that is needed later.
bool FetchedFiles::IsCancelled() const {
  return is_stopped_ || (IsAwaited() && needed_ != current_);
}

absl::StatusOr<std::shared_ptr<const DataFileReader>> FetchedFiles::Open(
    int32_t index) {
  MutexLock open_lock(&open_mutex_);
  MutexLock lock(&mutex_);
  const auto ready =
      std::find_if(ready_.begin(), ready_.end(),
                   [&](const Ready& r) { return r.index == index; });
  if (ready != ready_.end()) {
    auto reader = std::move(ready->reader);
    ready_.erase(ready);
    return reader;
  }
  needed_ = index;
  changed_.SignalAll();
  while (!result_.has_value() && !is_stopped_) changed_.Wait(&mutex_);
  needed_ = -1;
  if (!result_.has_value()) {
    return absl::CancelledError(absl::StrCat(
        "stopped while waiting for data file ", files_[index].path));
  }
  Result result = *std::move(result_);
  result_.reset();
  return result;
}

void FetchedFiles::Prefetch(int32_t index) {
  MutexLock lock(&mutex_);
  const bool is_known =
      std::find(ahead_.begin(), ahead_.end(), index) != ahead_.end() ||
      std::any_of(ready_.begin(), ready_.end(),
                  [&](const Ready& r) { return r.index == index; });
  if (is_known) return;
  ahead_.push_back(index);
  if (ahead_.size() > kAheadMax) ahead_.pop_front();
  changed_.SignalAll();
}

void FetchedFiles::Run() {
  while (const std::optional<Work> work = NextWork()) {
    Deliver(*work, downloader_.Fetch(files_[work->index], work->is_needed));
  }
}

std::optional<FetchedFiles::Work> FetchedFiles::NextWork() {
  MutexLock lock(&mutex_);
  while (!is_stopped_ && !IsAwaited() && ahead_.empty()) {
    changed_.Wait(&mutex_);
  }
  if (is_stopped_) return std::nullopt;
  current_ = IsAwaited() ? needed_ : ahead_.front();
  return Work{current_, IsAwaited()};
}

void FetchedFiles::Deliver(const Work& work, Result result) {
  MutexLock lock(&mutex_);
  current_ = -1;
  if (is_stopped_) return;
  const bool is_awaited = IsAwaited() && work.index == needed_;
  // What failed as a hint is tried again as a need.
  if (is_awaited && (result.ok() || work.is_needed)) {
    result_ = std::move(result);
    std::erase(ahead_, work.index);
    changed_.SignalAll();
    return;
  }
  if (is_awaited || absl::IsCancelled(result.status())) return;
  std::erase(ahead_, work.index);
  if (!result.ok()) {
    LOG(WARNING) << "not downloaded ahead: " << result.status().message();
    return;
  }
  ready_.push_back({work.index, *std::move(result)});
  if (ready_.size() > kAheadMax) ready_.pop_front();
}

}  // namespace atl::worker
