// A Store in memory: everyone's fake. Errors can be injected.
//
// Thread-safe.

#ifndef COORDINATOR_STORE_MEMORY_STORE_H_
#define COORDINATOR_STORE_MEMORY_STORE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"
#include "coordinator/store/store.h"

namespace atl::coordinator {

class MemoryStore : public Store {
 public:
  absl::Status Append(absl::Span<const LogEntry> entries) override;
  absl::StatusOr<std::vector<storage::v1::Record>> Scan(
      const std::string& run_id, int64_t after_revision,
      int64_t count_max) const override;
  absl::StatusOr<std::vector<std::string>> ListLogs() const override;

  // Every Append fails with `status` until it is OK again.
  void FailAppends(absl::Status status);
  // Appends that were made.
  int append_count() const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, std::vector<storage::v1::Record>> logs_
      ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  int append_count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_STORE_MEMORY_STORE_H_
