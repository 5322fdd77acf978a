// The files of a manifest by URL, through a cache: a thread downloads what is
// needed, and then what is needed next.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/sync/mutex.h"
#include "worker/data/data_file_reader.h"
#include "worker/data/fetch/downloader.h"
#include "worker/data/fetch/shard_cache.h"
#include "worker/data/file_source.h"
#include "worker/data/manifest.h"

namespace atl::worker {

class FetchedFiles : public FileSource {
 public:
  // Most files that are downloaded ahead. Later hints replace earlier ones.
  static constexpr size_t kAheadMax = 2;

  // Sets `cache`, `cancelled` and `pause` of `options`. `stop` ends every wait.
  FetchedFiles(std::vector<ManifestFile> files,
               std::unique_ptr<ShardCache> cache, DownloaderOptions options,
               std::stop_token stop);
  // Ends the download that runs; a later one continues it.
  ~FetchedFiles() override;

  // Waits while another call of it runs.
  absl::StatusOr<std::shared_ptr<const DataFileReader>> Open(
      int32_t index) override;
  void Prefetch(int32_t index) override;

 private:
  using Result = absl::StatusOr<std::shared_ptr<const DataFileReader>>;
  struct Work {
    int32_t index = -1;
    bool is_needed = false;
  };

  DownloaderOptions Complete(DownloaderOptions options);
  void Run();
  // Waits for the next download. Empty: stopped.
  std::optional<Work> NextWork();
  void Deliver(const Work& work, Result result);
  bool IsCancelled() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Open waits, and has no result yet.
  bool IsAwaited() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return needed_ >= 0 && !result_.has_value();
  }
  void Stop();

  const std::vector<ManifestFile> files_;
  const std::unique_ptr<ShardCache> cache_;
  Downloader downloader_;  // Of the thread.

  Mutex open_mutex_;  // Held by Open, before mutex_.
  Mutex mutex_;
  CondVar changed_;
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int32_t current_ ABSL_GUARDED_BY(mutex_) = -1;          // Being downloaded.
  int32_t needed_ ABSL_GUARDED_BY(mutex_) = -1;           // Open waits for it.
  std::optional<Result> result_ ABSL_GUARDED_BY(mutex_);  // For Open.
  std::deque<int32_t> ahead_ ABSL_GUARDED_BY(mutex_);     // To download ahead.
  struct Ready {
    int32_t index;
    std::shared_ptr<const DataFileReader> reader;
  };
  std::deque<Ready> ready_ ABSL_GUARDED_BY(mutex_);  // At most kAheadMax.

  std::thread thread_;
  std::stop_callback<std::function<void()>> on_stop_;
};

}  // namespace atl::worker
