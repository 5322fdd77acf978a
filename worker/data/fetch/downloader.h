// Brings a data file into the cache: waits for its source, resumes, and tries
// again. Thread-compatible.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/object_store/object_store.h"
#include "base/time/clock.h"
#include "base/time/token_bucket.h"
#include "worker/data/data_file_reader.h"
#include "worker/data/fetch/shard_cache.h"
#include "worker/data/manifest.h"

namespace atl::worker {

struct DownloaderOptions {
  ShardCache* cache = nullptr;  // Must outlive the downloader.
  // Opens the store of the manifest's directory, whose calls end soon after
  // `cancelled` is true.
  std::function<absl::StatusOr<std::unique_ptr<ObjectStore>>(
      std::function<bool()> cancelled)>
      open_store;
  // Whether to give up. Asked between pieces and waits.
  std::function<bool()> cancelled = [] { return false; };
  // Waits, shorter if `cancelled` becomes true.
  std::function<void(absl::Duration)> pause;
  // Told of each failure after which it tries again.
  std::function<void(const absl::Status&)> on_failure =
      [](const absl::Status&) {};
  const Clock* clock = &SystemClock();
  double bytes_per_second = 0;  // 0: no bound.
  // Longest time without progress: with less than kProgressBytesPerSecond.
  absl::Duration patience = absl::Hours(2);
};

class Downloader {
 public:
  // A file whose bytes are wrong this often is given up.
  static constexpr int kWrongMax = 3;
  // A source that sends less makes no progress.
  static constexpr int64_t kProgressBytesPerSecond = 1024;
  // Between two tries: 1 s, doubled up to this.
  static constexpr absl::Duration kBackoffMax = absl::Seconds(30);

  explicit Downloader(DownloaderOptions options);

  // Opens the file in the cache, after it was downloaded if it was not there.
  // Messages name the file and its URL.
  //
  // `is_needed`: a reader waits for it. Then files in use do not hinder it: the
  // cache may exceed its size while they are open.
  //
  // It waits, at most for `patience` without progress, for a source that is
  // away; for a needed file also for one that refuses (403, 404), a full disk,
  // and a process with too many open files: an operator may mend these. The
  // error is then that of the last try.
  //
  // RESOURCE_EXHAUSTED: the file exceeds the cache's size, or (unless needed)
  // files in use fill the cache; the disk is full. DATA_LOSS: the source has
  // other bytes. UNAVAILABLE: the source is away. CANCELLED. Others: the source
  // refuses, or the disk fails.
  absl::StatusOr<std::shared_ptr<const DataFileReader>> Fetch(
      const ManifestFile& file, bool is_needed);

 private:
  using Reader = std::shared_ptr<const DataFileReader>;

  // The state of one Fetch.
  struct Progress {
    absl::Time mark_time;    // The last time with enough new bytes,
    int64_t mark_bytes = 0;  // and the bytes in the part file then.
    int64_t part_bytes = 0;  // Bytes in the part file after the last try.
    bool is_needed = false;
    int failure_count = 0;       // In a row, without a byte.
    bool source_failed = false;  // The last failure is the source's.
    int wrong_count = 0;
    bool is_told = false;
  };

  // One look into the cache, and one try to download.
  absl::StatusOr<Reader> Try(const ManifestFile& file, bool is_needed,
                             Progress& progress);
  absl::Status Download(const ManifestFile& file, PartFile& part,
                        Progress& progress);
  absl::Status Append(PartFile& part, absl::string_view bytes);
  void Pace(int64_t bytes);
  // OK: try again, after a wait.
  absl::Status Judge(const ManifestFile& file, const absl::Status& failure,
                     Progress& progress);
  std::string GetUrl(const ManifestFile& file) const;

  const DownloaderOptions options_;
  std::optional<TokenBucket> bucket_;
  std::unique_ptr<ObjectStore> store_;
};

}  // namespace atl::worker
