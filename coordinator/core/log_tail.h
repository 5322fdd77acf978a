// How long a log has grown since its newest snapshot, and when the next is due.
//
// A snapshot is due once the records behind the newest one pass a bound, and
// are at least as many bytes as that snapshot is: so snapshots at most double
// what is written, and a replay reads at most the bound or as much again as
// the snapshot, whichever is more.
//
// Pure. Thread-compatible.

#ifndef COORDINATOR_CORE_LOG_TAIL_H_
#define COORDINATOR_CORE_LOG_TAIL_H_

#include <cstdint>

namespace atl::coordinator {

struct SnapshotPolicy {
  // Records behind the newest snapshot, >= 1, and their bytes, >= 1: either
  // makes the next one due.
  int64_t log_records_max = 4096;
  int64_t log_bytes_max = int64_t{4} << 20;
};

class LogTail {
 public:
  // The log has one more record.
  void Add(int64_t byte_count) {
    ++record_count_;
    byte_count_ += byte_count;
  }

  bool SnapshotDue(const SnapshotPolicy& policy) const {
    return (record_count_ >= policy.log_records_max ||
            byte_count_ >= policy.log_bytes_max) &&
           byte_count_ >= snapshot_byte_count_;
  }

  // The log up to `revision` has a snapshot of so many bytes.
  void Cut(int64_t revision, int64_t snapshot_byte_count) {
    record_count_ = 0;
    byte_count_ = 0;
    snapshot_revision_ = revision;
    snapshot_byte_count_ = snapshot_byte_count;
  }

  // Of the newest snapshot; 0 if there is none.
  int64_t snapshot_revision() const { return snapshot_revision_; }

 private:
  int64_t record_count_ = 0;
  int64_t byte_count_ = 0;
  int64_t snapshot_revision_ = 0;
  int64_t snapshot_byte_count_ = 0;
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_LOG_TAIL_H_
