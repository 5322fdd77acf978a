// The interface of the coordinator's store of records.
//
// Each run has one log; the coordinator's own has the empty run_id. Records are
// numbered from 1 without a gap. A snapshot stands for the records up to its
// revision. The batch that writes it deletes the records up to its
// compacted_revision; at least one record stays. A run also has a history, to
// which rows are only added.
//
// An append is one atomic, synced batch over all of these. After OK it survives
// a power cut; after a crash all of it is there or nothing. Batches are
// counted, so a store notices if its disk has lost synced ones.
//
// Each read may also return UNAVAILABLE or RESOURCE_EXHAUSTED after a disk
// error, until the store can use its disk again: call again.
//
// Thread-safe. Only one thread at a time may append.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/storage/v1/coordinator_records.pb.h"
#include "coordinator/core/outputs/batch.h"

namespace atl::coordinator {

// Format of the stored data. A store with another one is refused.
inline constexpr int64_t kStoreFormat = 3;

class Store {
 public:
  virtual ~Store() = default;

  // Writes `batch` atomically and syncs it. Deletes the rows of its
  // deleted_runs first. Each entry must follow the last record of its log. A
  // snapshot must be of the last record of its log, this batch included, and
  // leave a record. Existing rows and snapshots are replaced. Trimmed rows are
  // deleted, also those of this batch. An empty batch writes nothing.
  //
  // INVALID_ARGUMENT: an entry or a snapshot does not fit, or the coordinator's
  // own log would be deleted; nothing was written.
  // RESOURCE_EXHAUSTED: the disk is full. UNAVAILABLE: the disk refuses. After
  // both the next Scan shows what was written.
  // DATA_LOSS: as `damage`; nothing was written.
  virtual absl::Status Append(const Batch& batch) = 0;

  // The newest snapshot of a log; nullopt if the log has none.
  //
  // DATA_LOSS: it cannot be read back.
  virtual absl::StatusOr<std::optional<storage::v1::Snapshot>> ReadSnapshot(
      const std::string& run_id) const = 0;

  // Up to `count_max` records of a log after `after_revision`, in order; 0
  // starts with the oldest one kept.
  //
  // OUT_OF_RANGE: `after_revision` is not 0, and the next record was deleted.
  // DATA_LOSS: a record cannot be read back.
  virtual absl::StatusOr<std::vector<storage::v1::Record>> Scan(
      const std::string& run_id, int64_t after_revision,
      int64_t count_max) const = 0;

  // The rows with numbers in [begin, end), in order. Stops after the row that
  // brings the result to `bytes_max` bytes.
  //
  // DATA_LOSS: a row cannot be read back.
  virtual absl::StatusOr<std::vector<HistoryRow>> ReadHistory(
      const std::string& run_id, HistoryTable table, int64_t begin, int64_t end,
      int64_t bytes_max) const = 0;

  // The ids of all logs, sorted; the coordinator's own is "".
  virtual absl::StatusOr<std::vector<std::string>> ListLogs() const = 0;

  // Number of synced batches that the store holds. An Append of a batch that is
  // not empty adds 1.
  virtual int64_t index() const = 0;

  // DATA_LOSS: synced records are gone; the message names the number of batches
  // that the store holds and the number that were written, or what cannot be
  // read. Then reads return what is before the damage, and the store writes
  // nothing.
  virtual absl::Status damage() const = 0;
};

}  // namespace atl::coordinator
