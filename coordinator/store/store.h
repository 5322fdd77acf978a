// Where the coordinator's records are kept.
//
// One log a run, and the coordinator's own under the empty run_id; records are
// numbered from 1 without a gap. A snapshot stands for the records up to its
// revision; with it, in the same batch, those up to its compacted_revision are
// deleted, so that a log has records from there on, without a gap, and at
// least one. Beside its log a run has a history: rows that are only added.
//
// An append is one atomic, synced batch over all of these: after OK all of it
// survives a power cut, after a crash all of it is there or none.
// Implementations: RocksDbStore, and MemoryStore for tests.
//
// Thread-safe; appends come from one thread at a time.

#ifndef COORDINATOR_STORE_STORE_H_
#define COORDINATOR_STORE_STORE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/storage/v1/coordinator_records.pb.h"
#include "coordinator/core/outputs/batch.h"

namespace atl::coordinator {

// Format of what is stored; a store of a greater one is refused.
inline constexpr int64_t kStoreFormat = 2;

class Store {
 public:
  virtual ~Store() = default;

  // Writes `batch` atomically and syncs it. Each entry must follow the last
  // record of its log; a snapshot must be of the last record of its log, this
  // batch's included, and leave records in it. A row or a snapshot that is
  // there is replaced.
  //
  // INVALID_ARGUMENT: an entry or a snapshot does not fit; nothing was written.
  // RESOURCE_EXHAUSTED: the disk is full; nothing was written.
  // UNAVAILABLE: the disk refuses; whether it was written is only known after
  // the next Scan.
  virtual absl::Status Append(const Batch& batch) = 0;

  // The newest snapshot of the log of `run_id`; nullopt if there is none.
  //
  // DATA_LOSS: it cannot be read back.
  virtual absl::StatusOr<std::optional<storage::v1::Snapshot>> ReadSnapshot(
      const std::string& run_id) const = 0;

  // Up to `count_max` records of the log of `run_id` with a greater revision
  // than `after_revision`, in order; if that is 0, from the oldest kept on.
  //
  // OUT_OF_RANGE: `after_revision` is not 0, and the record behind it was
  // deleted.
  // DATA_LOSS: a record cannot be read back.
  virtual absl::StatusOr<std::vector<storage::v1::Record>> Scan(
      const std::string& run_id, int64_t after_revision,
      int64_t count_max) const = 0;

  // Rows of a run's history with numbers in [begin, end), in order, as many as
  // there are; it ends early behind the first row with which it holds
  // `bytes_max` bytes.
  //
  // DATA_LOSS: a row cannot be read back.
  virtual absl::StatusOr<std::vector<HistoryRow>> ReadHistory(
      const std::string& run_id, HistoryTable table, int64_t begin, int64_t end,
      int64_t bytes_max) const = 0;

  // The ids of all logs, sorted; the coordinator's own is the empty one.
  virtual absl::StatusOr<std::vector<std::string>> ListLogs() const = 0;
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_STORE_STORE_H_
