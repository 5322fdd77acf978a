// A Store in memory, for tests. Errors can be injected. Thread-safe.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"
#include "coordinator/store/store.h"

namespace atl::coordinator {

class MemoryLogStore : public Store {
 public:
  absl::Status Append(const Batch& batch) override;
  absl::StatusOr<std::optional<storage::v1::Snapshot>> ReadSnapshot(
      const std::string& run_id) const override;
  absl::StatusOr<std::vector<storage::v1::Record>> Scan(
      const std::string& run_id, int64_t after_revision,
      int64_t count_max) const override;
  absl::StatusOr<std::vector<HistoryRow>> ReadHistory(
      const std::string& run_id, HistoryTable table, int64_t begin, int64_t end,
      int64_t bytes_max) const override;
  absl::StatusOr<std::vector<std::string>> ListLogs() const override;
  int64_t index() const override;
  absl::Status damage() const override;

  // Every Append fails with `status` until it is set to OK.
  void FailAppends(absl::Status status);
  // `damage` and every Append return `status` until it is set to OK.
  void SetDamage(absl::Status status);
  // Records of a log after `revision` cannot be read back.
  void DamageRecordsAfter(const std::string& run_id, int64_t revision);

 private:
  struct Log {
    std::optional<storage::v1::Snapshot> snapshot;
    std::map<int64_t, storage::v1::Record> records;  // By revision.
    std::map<std::pair<HistoryTable, int64_t>, HistoryRow> history;
  };

  mutable Mutex mutex_;
  std::map<std::string, Log> logs_ ABSL_GUARDED_BY(mutex_);
  int64_t index_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  absl::Status damage_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, int64_t> readable_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::coordinator
