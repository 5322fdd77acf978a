#include "coordinator/core/outputs/audit_rows.h"

#include <cstddef>

namespace atl::coordinator {
namespace {

// Rounded up.
constexpr size_t kMarksMax =
    static_cast<size_t>((kAuditKept + kAuditTrimStep - 1) / kAuditTrimStep);

}  // namespace

HistoryTable FindAuditTable(const v1::AuditRecord& audit) {
  return audit.action() == "island.enrol" || audit.action() == "island.renew"
             ? HistoryTable::kEnrolments
             : HistoryTable::kAudit;
}

void AuditRows::Apply(const storage::v1::Record& record) {
  if (!record.has_audit() ||
      FindAuditTable(record.audit()) != HistoryTable::kAudit) {
    return;
  }
  if (++count_ % kAuditTrimStep != 0) return;
  marks_.push_back(record.revision());
  if (marks_.size() <= kMarksMax) return;
  trim_end_ = marks_.front();
  marks_.pop_front();
}

void AuditRows::Restore(const storage::v1::CoordinatorSnapshot& snapshot) {
  count_ = snapshot.audit_row_count();
  marks_.assign(snapshot.audit_row_marks().begin(),
                snapshot.audit_row_marks().end());
}

void AuditRows::AddTo(storage::v1::CoordinatorSnapshot& snapshot) const {
  snapshot.set_audit_row_count(count_);
  for (const int64_t mark : marks_) snapshot.add_audit_row_marks(mark);
}

void AuditRows::AddTrims(Batch& batch) {
  if (batch.entries.empty()) return;
  if (trim_end_ > 0) {
    batch.trims.push_back({"", HistoryTable::kAudit, trim_end_});
    trim_end_ = 0;
  }
  for (const LogEntry& entry : batch.entries) {
    const int64_t revision = entry.record.revision();
    if (entry.run_id.empty() && revision % kAuditTrimStep == 0 &&
        revision > kAuditKept) {
      batch.trims.push_back(
          {"", HistoryTable::kEnrolments, revision - kAuditKept});
    }
  }
}

}  // namespace atl::coordinator
