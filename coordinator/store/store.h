// The coordinator's durable memory: logs of records.
//
// A log is a run's, named by its run_id, or the coordinator's own, with the
// empty name. The records of a log are numbered from 1 without a gap
// (Record.revision), and never change.
//
// Thread-safe. Two implementations: RocksDB, and one in memory that tests use.
// What is written has a format number; see rocksdb_store.h.

#ifndef COORDINATOR_STORE_STORE_H_
#define COORDINATOR_STORE_STORE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "atoll/storage/v1/coordinator_records.pb.h"

namespace atl::coordinator {

// Records to append to one log.
struct LogAppend {
  std::string run_id;  // Empty for the coordinator's own log.
  std::vector<storage::v1::Record> records;
};

class Store {
 public:
  virtual ~Store() = default;

  // Appends to any number of logs, all of it or nothing; durable (survives
  // power loss) on return. After an error nothing is appended.
  //
  // INTERNAL: a record's revision is not the one that follows its log's last.
  // RESOURCE_EXHAUSTED: the disk is full. DATA_LOSS: it cannot be written.
  virtual absl::Status Append(absl::Span<const LogAppend> appends) = 0;

  // Names of the logs that have records, sorted.
  virtual absl::StatusOr<std::vector<std::string>> ListLogs() const = 0;

  // Records of a log with revision > `after_revision`, in order, at most
  // `record_count_max` (>= 1); empty if there are none.
  //
  // DATA_LOSS: a record is damaged or missing; the message names it.
  virtual absl::StatusOr<std::vector<storage::v1::Record>> Read(
      absl::string_view run_id, int64_t after_revision,
      int64_t record_count_max) const = 0;

  // Revision of a log's last record; 0 if it has none.
  virtual int64_t LastRevision(absl::string_view run_id) const = 0;
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_STORE_STORE_H_
