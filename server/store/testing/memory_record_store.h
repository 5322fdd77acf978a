// A RecordStore in memory, for tests.
//
// Thread-safe. Keeps a copy of the records at the last Sync::kMachine, so that
// a test can cut the power.

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"
#include "server/store/records/record_map.h"
#include "server/store/records/record_store.h"

namespace atl::server {

class MemoryRecordStore final : public RecordStore {
 public:
  absl::Status Write(const RecordBatch& batch, Sync sync) override;
  absl::StatusOr<std::string> Get(absl::string_view name) const override;
  absl::StatusOr<std::vector<Record>> Scan(
      absl::string_view prefix) const override;

  // Forgets every write after the last synced one.
  void CutPower();
  // Every Write fails with `status` from now on; OK ends that.
  void FailWrites(absl::Status status);
  // The next Write calls `hook` before it changes anything.
  void BeforeNextWrite(std::function<void()> hook);

 private:
  mutable Mutex mutex_;
  RecordMap records_ ABSL_GUARDED_BY(mutex_);
  RecordMap synced_ ABSL_GUARDED_BY(mutex_);
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> before_next_write_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
