// Measures a log since its newest snapshot and tells when the next one is due.
//
// A snapshot is due once the records after the newest one exceed a limit and
// have at least as many bytes as that snapshot. So snapshots at most double the
// bytes written. A replay reads at most the limit, or the snapshot's size again
// if that is more.
//
// Pure. Thread-compatible.

#pragma once

#include <cstdint>

namespace atl::coordinator {

struct SnapshotPolicy {
  // Records after the newest snapshot, and their bytes; each >= 1. Reaching
  // either limit makes the next snapshot due.
  int64_t log_records_max = 4096;
  int64_t log_bytes_max = int64_t{4} << 20;
};

class LogTail {
 public:
  void Add(int64_t byte_count) {
    ++record_count_;
    byte_count_ += byte_count;
  }

  bool SnapshotDue(const SnapshotPolicy& policy) const {
    return (record_count_ >= policy.log_records_max ||
            byte_count_ >= policy.log_bytes_max) &&
           byte_count_ >= snapshot_byte_count_;
  }

  // Notes a snapshot of the log up to `revision`.
  void Cut(int64_t revision, int64_t snapshot_byte_count) {
    record_count_ = 0;
    byte_count_ = 0;
    snapshot_revision_ = revision;
    snapshot_byte_count_ = snapshot_byte_count;
  }

  // Revision of the newest snapshot; 0 before the first.
  int64_t snapshot_revision() const { return snapshot_revision_; }

 private:
  int64_t record_count_ = 0;
  int64_t byte_count_ = 0;
  int64_t snapshot_revision_ = 0;
  int64_t snapshot_byte_count_ = 0;
};

}  // namespace atl::coordinator
