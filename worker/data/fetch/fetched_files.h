// The files of a manifest by URL, through a cache: a thread downloads what is
// needed, and then what is needed next.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
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

  // Sets `cache`, `cancelled`, `pause` and `on_failure` of `options`. `stop`
  // ends every wait. `came` is called, from any thread and without a lock, when
  // a needed file is here or cannot come; it may be empty.
  FetchedFiles(std::vector<ManifestFile> files,
               std::unique_ptr<ShardCache> cache, DownloaderOptions options,
               std::stop_token stop, std::function<void()> came = nullptr);
  // Ends the download that runs; a later one continues it.
  ~FetchedFiles() override;

  // After a stop DataAwaited: the caller knows of the stop.
  absl::Status Ready(absl::Span<const int32_t> files) override;
  // Waits while another call of it runs.
  absl::StatusOr<std::shared_ptr<const DataFileReader>> Open(
      int32_t index) override;
  void Prefetch(int32_t index) override;

 private:
  using Reader = std::shared_ptr<const DataFileReader>;
  using Result = absl::StatusOr<Reader>;
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
  // The first needed file that has no result yet; -1: none.
  int32_t Awaited() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Moves a file that was downloaded ahead to the results.
  void TakeAhead(int32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Describe(int32_t index) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Stop();

  const std::vector<ManifestFile> files_;
  const std::unique_ptr<ShardCache> cache_;
  const std::function<void()> came_;
  Downloader downloader_;  // Used on thread_ only.

  Mutex open_mutex_;  // Held by Open, before mutex_.
  mutable Mutex mutex_;
  CondVar changed_;
  bool is_stopped_ ABSL_GUARDED_BY(mutex_) = false;
  int32_t current_ ABSL_GUARDED_BY(mutex_) = -1;  // Being downloaded.
  std::string failure_ ABSL_GUARDED_BY(mutex_);   // The last one of current_.
  std::vector<int32_t> needed_ ABSL_GUARDED_BY(mutex_);        // Needed now.
  std::map<int32_t, Result> results_ ABSL_GUARDED_BY(mutex_);  // By needed_.
  std::deque<int32_t> ahead_ ABSL_GUARDED_BY(mutex_);  // To download ahead.
  struct Ahead {
    int32_t index;
    Reader reader;
  };
  std::deque<Ahead> ready_ ABSL_GUARDED_BY(mutex_);  // At most kAheadMax.

  std::thread thread_;
  std::stop_callback<std::function<void()>> on_stop_;
};

}  // namespace atl::worker
