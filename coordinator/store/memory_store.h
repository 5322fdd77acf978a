// A Store in memory, for tests: real in all but durability.

#ifndef COORDINATOR_STORE_MEMORY_STORE_H_
#define COORDINATOR_STORE_MEMORY_STORE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"
#include "coordinator/store/revisions.h"
#include "coordinator/store/store.h"

namespace atl::coordinator {

class MemoryStore : public Store {
 public:
  absl::Status Append(absl::Span<const LogAppend> appends) override;
  absl::StatusOr<std::vector<std::string>> ListLogs() const override;
  absl::StatusOr<std::vector<storage::v1::Record>> Read(
      absl::string_view run_id, int64_t after_revision,
      int64_t record_count_max) const override;
  int64_t LastRevision(absl::string_view run_id) const override;

  // The next append fails with `status`, and appends nothing.
  void FailNextAppend(absl::Status status);

 private:
  mutable Mutex mutex_;
  Revisions revisions_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::vector<storage::v1::Record>, std::less<>> logs_
      ABSL_GUARDED_BY(mutex_);
  absl::Status next_failure_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_STORE_MEMORY_STORE_H_
