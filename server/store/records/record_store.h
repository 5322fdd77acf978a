// Small durable records: a map from names to bytes.
//
// Thread-safe. Implementations: a log file (LogRecordStore), and one in memory
// for tests, which can forget writes that were not synced.

#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl::server {

// Changes that are made all or none, in the order they were added.
class RecordBatch {
 public:
  struct Change {
    enum class Kind { kPut, kDelete, kDeletePrefix };
    Kind kind;
    std::string name;
    std::string value;  // A put's.
  };

  void Put(absl::string_view name, absl::string_view value);
  void Delete(absl::string_view name);
  // Deletes every record whose name begins with `prefix` (not empty).
  void DeletePrefix(absl::string_view prefix);

  const std::vector<Change>& changes() const { return changes_; }

 private:
  std::vector<Change> changes_;
};

// How durable a write must be before Write returns.
enum class Sync {
  kProcess,  // Survives the end of this process.
  kMachine,  // Survives power loss.
};

class RecordStore {
 public:
  using Record = std::pair<std::string, std::string>;  // Name, value.

  virtual ~RecordStore() = default;

  // Nothing changes after RESOURCE_EXHAUSTED: the disk is full. DATA_LOSS: the
  // disk failed. No later write succeeds, and only the next open tells whether
  // this batch is there.
  virtual absl::Status Write(const RecordBatch& batch, Sync sync) = 0;
  // NOT_FOUND: no record has this name.
  virtual absl::StatusOr<std::string> Get(absl::string_view name) const = 0;
  // Every record whose name begins with `prefix`, in the order of names.
  virtual absl::StatusOr<std::vector<Record>> Scan(
      absl::string_view prefix) const = 0;
  // OK, or DATA_LOSS: records that were synced are gone. Then the store has an
  // older state, and Write fails with this status and changes nothing.
  virtual absl::Status damage() const { return absl::OkStatus(); }
};

}  // namespace atl::server
