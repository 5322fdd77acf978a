// The state of a server's machine, for its reports: free disk and the time of
// syncs. Thread-safe, and never waits for the disk.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "atoll/v1/server_service.pb.h"
#include "base/sync/mutex.h"

namespace atl::server {

class MachineHealth {
 public:
  // Watches the file system of `directory`.
  explicit MachineHealth(std::string directory);

  // A write took `duration` to become durable.
  void NoteSync(absl::Duration duration);

  // The newest values, with `now` as the machine's time. While the disk does
  // not answer they stay as they are.
  v1::ServerHealth Get(absl::Time now);

 private:
  // A thread that waits for the disk may outlive this object.
  struct Disk {
    Mutex mutex;
    bool reading ABSL_GUARDED_BY(mutex) = false;
    absl::Time start ABSL_GUARDED_BY(mutex) = absl::InfinitePast();
    int64_t free_bytes ABSL_GUARDED_BY(mutex) = 0;
    int64_t total_bytes ABSL_GUARDED_BY(mutex) = 0;
  };

  void StartRead();

  const std::string directory_;
  const std::shared_ptr<Disk> disk_;
  Mutex mutex_;
  // The newest syncs; the oldest is overwritten.
  std::vector<absl::Duration> syncs_ ABSL_GUARDED_BY(mutex_);
  size_t next_sync_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace atl::server
