// Where the coordinator's records are kept.
//
// One log a run, and the coordinator's own under the empty run_id; records are
// numbered from 1 without a gap. An append is one atomic, synced batch over any
// logs: after OK all of it survives a power cut, after a crash all of it is
// there or none. Implementations: RocksDbStore, and MemoryStore for tests.
//
// Thread-safe; appends come from one thread at a time.

#ifndef COORDINATOR_STORE_STORE_H_
#define COORDINATOR_STORE_STORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "atoll/storage/v1/coordinator_records.pb.h"
#include "coordinator/core/coordinator.h"

namespace atl::coordinator {

// Format of what is stored; a store of a greater one is refused.
inline constexpr int64_t kStoreFormat = 1;

class Store {
 public:
  virtual ~Store() = default;

  // Appends `entries` atomically and syncs them. Each must follow the last
  // record of its log.
  //
  // INVALID_ARGUMENT: an entry does not follow; nothing was written.
  // RESOURCE_EXHAUSTED: the disk is full; nothing was written.
  // UNAVAILABLE: the disk refuses; whether it was written is only known after
  // the next Scan.
  virtual absl::Status Append(absl::Span<const LogEntry> entries) = 0;

  // Up to `count_max` records of the log of `run_id` with a greater revision
  // than `after_revision`, in order.
  //
  // DATA_LOSS: a record cannot be read back.
  virtual absl::StatusOr<std::vector<storage::v1::Record>> Scan(
      const std::string& run_id, int64_t after_revision,
      int64_t count_max) const = 0;

  // The ids of all logs, sorted; the coordinator's own is the empty one.
  virtual absl::StatusOr<std::vector<std::string>> ListLogs() const = 0;
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_STORE_STORE_H_
