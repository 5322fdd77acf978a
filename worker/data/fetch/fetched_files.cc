#include "worker/data/fetch/fetched_files.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "base/obs/log.h"
#include "worker/core/data_awaited.h"

namespace atl::worker {

FetchedFiles::FetchedFiles(std::vector<ManifestFile> files,
                           std::unique_ptr<ShardCache> cache,
                           DownloaderOptions options, std::stop_token stop,
                           std::function<void()> came)
    : files_(std::move(files)),
      cache_(std::move(cache)),
      came_(std::move(came)),
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
  options.on_failure = [this](const absl::Status& failure) {
    MutexLock lock(&mutex_);
    failure_ = std::string(failure.message());
  };
  return options;
}

void FetchedFiles::Stop() {
  MutexLock lock(&mutex_);
  is_stopped_ = true;
  changed_.SignalAll();
}

int32_t FetchedFiles::Awaited() const {
  for (const int32_t index : needed_) {
    if (!results_.contains(index)) return index;
  }
  return -1;
}

// A file that is needed now interrupts one that is needed later.
bool FetchedFiles::IsCancelled() const {
  const int32_t awaited = Awaited();
  return is_stopped_ || (awaited >= 0 && awaited != current_);
}

void FetchedFiles::TakeAhead(int32_t index) {
  const auto ahead = absl::c_find_if(
      ready_, [&](const Ahead& file) { return file.index == index; });
  if (ahead == ready_.end()) return;
  results_.insert_or_assign(index, std::move(ahead->reader));
  ready_.erase(ahead);
}

absl::Status FetchedFiles::Describe(int32_t index) const {
  const ManifestFile& file = files_[index];
  std::string text = absl::StrCat("file ", file.path);
  const int64_t here = cache_->GetPartBytes(file);
  if (file.size_bytes > 0) {
    absl::StrAppend(&text, ", ", 100 * here / file.size_bytes, " %");
  }
  if (index == current_ && !failure_.empty()) {
    absl::StrAppend(&text, ", ", failure_);
  }
  return DataAwaited(text, file.path);
}

absl::Status FetchedFiles::Ready(absl::Span<const int32_t> files) {
  MutexLock lock(&mutex_);
  needed_.assign(files.begin(), files.end());
  std::erase_if(results_, [&](const auto& result) {
    return !absl::c_linear_search(needed_, result.first);
  });
  for (const int32_t index : needed_) {
    TakeAhead(index);
    const auto found = results_.find(index);
    if (found == results_.end() || found->second.ok()) continue;
    const absl::Status failed = found->second.status();
    // A later call tries again.
    results_.erase(found);
    needed_.clear();
    return failed;
  }
  const int32_t awaited = Awaited();
  if (awaited < 0) return absl::OkStatus();
  changed_.SignalAll();
  return Describe(awaited);
}

absl::StatusOr<std::shared_ptr<const DataFileReader>> FetchedFiles::Open(
    int32_t index) {
  MutexLock open_lock(&open_mutex_);
  MutexLock lock(&mutex_);
  TakeAhead(index);
  if (!results_.contains(index)) {
    needed_ = {index};
    changed_.SignalAll();
  }
  while (!results_.contains(index) && !is_stopped_) changed_.Wait(&mutex_);
  std::erase(needed_, index);
  const auto found = results_.find(index);
  if (found == results_.end()) {
    return absl::CancelledError(absl::StrCat(
        "stopped while waiting for data file ", files_[index].path));
  }
  Result result = std::move(found->second);
  results_.erase(found);
  return result;
}

void FetchedFiles::Prefetch(int32_t index) {
  MutexLock lock(&mutex_);
  const bool is_known =
      absl::c_linear_search(ahead_, index) ||
      absl::c_any_of(ready_, [&](const Ahead& f) { return f.index == index; });
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
  while (!is_stopped_ && Awaited() < 0 && ahead_.empty()) {
    changed_.Wait(&mutex_);
  }
  if (is_stopped_) return std::nullopt;
  const int32_t awaited = Awaited();
  current_ = awaited >= 0 ? awaited : ahead_.front();
  failure_.clear();
  return Work{current_, awaited >= 0};
}

void FetchedFiles::Deliver(const Work& work, Result result) {
  bool is_news = false;
  const absl::Cleanup tell = [&] {
    if (is_news && came_) came_();
  };
  MutexLock lock(&mutex_);
  current_ = -1;
  if (is_stopped_) return;
  const bool is_awaited = absl::c_linear_search(needed_, work.index);
  // A file that failed as a hint is tried again if it is needed.
  if (is_awaited && (result.ok() || work.is_needed)) {
    // Another needed file came first.
    if (absl::IsCancelled(result.status())) return;
    results_.insert_or_assign(work.index, std::move(result));
    std::erase(ahead_, work.index);
    changed_.SignalAll();
    is_news = true;
    return;
  }
  if (is_awaited || absl::IsCancelled(result.status())) return;
  std::erase(ahead_, work.index);
  if (!result.ok()) {
    LOG(WARNING) << "not downloaded: " << result.status().message();
    return;
  }
  ready_.push_back({work.index, *std::move(result)});
  if (ready_.size() > kAheadMax) ready_.pop_front();
}

}  // namespace atl::worker
