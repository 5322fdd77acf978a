// Which rows of the audit log are kept. Strangers cause enrolments and renewals
// as often as they like, so these rows have a table and a bound of their own.
//
// Pure. Thread-compatible.

#pragma once

#include <cstdint>
#include <deque>

#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/v1/enrolment.pb.h"
#include "coordinator/core/outputs/batch.h"

namespace atl::coordinator {

// Operators' rows: at least the newest so many, and at most two steps more.
// Strangers' rows: those among so many records of the coordinator's own log. A
// year of an operator's work has fewer; each takes some 300 bytes of disk.
inline constexpr int64_t kAuditKept = 100'000;
// Rows, or records, between two trims.
inline constexpr int64_t kAuditTrimStep = 1024;

// The table of an event's row.
HistoryTable FindAuditTable(const v1::AuditRecord& audit);

class AuditRows {
 public:
  // Counts the row of a record of the coordinator's own log, if it has one.
  void Apply(const storage::v1::Record& record);
  void Restore(const storage::v1::CoordinatorSnapshot& snapshot);
  void AddTo(storage::v1::CoordinatorSnapshot& snapshot) const;
  // Adds the trims that are due with `batch`, whose records were applied.
  void AddTrims(Batch& batch);

 private:
  int64_t count_ = 0;  // Operators' rows.
  // The numbers of every kAuditTrimStep-th of them, oldest first.
  std::deque<int64_t> marks_;
  int64_t trim_end_ = 0;  // To trim below; 0: nothing is due.
};

}  // namespace atl::coordinator
