// Output of the core that becomes durable all together or not at all.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "atoll/storage/v1/coordinator_records.pb.h"

namespace atl::coordinator {

// A record of the log of `run_id`; the coordinator's own log has the id "".
struct LogEntry {
  std::string run_id;
  storage::v1::Record record;
};

// Tables of a run's history, which may be long: rows are written once, read by
// range and never held in memory.
enum class HistoryTable {
  kRounds,       // v1.Round by commit_seq: from 1, without a gap.
  kEvaluations,  // v1.Evaluation by version, of those that were evaluated.
  // v1.AuditRecord by number, with gaps; its run_id is "". Stores of before
  // 2026-11-27 have all of them in the first (audit_rows.h).
  kAudit,       // Events of operators.
  kEnrolments,  // Enrolments and renewals.
};

struct HistoryRow {
  std::string run_id;
  HistoryTable table = HistoryTable::kRounds;
  int64_t number = 0;
  std::string value;  // The message, serialised.
};

// Format of storage.v1.Snapshot. A newer one is refused.
inline constexpr int64_t kSnapshotFormat = 1;

// The state of the log of `run_id` after this batch.
struct LogSnapshot {
  std::string run_id;
  storage::v1::Snapshot snapshot;
};

// Deletes a run's rows of `table` with numbers below `end`.
struct HistoryTrim {
  std::string run_id;
  HistoryTable table = HistoryTable::kRounds;
  int64_t end = 0;
};

struct Batch {
  std::vector<LogEntry> entries;
  std::vector<HistoryRow> history;
  std::vector<LogSnapshot> snapshots;
  // Ids of runs whose log, snapshot and history are deleted. That comes first:
  // the rest of the batch may be of a new run with the same id.
  std::vector<std::string> deleted_runs;
  std::vector<HistoryTrim> trims;  // They come last.

  bool empty() const {
    return entries.empty() && history.empty() && snapshots.empty() &&
           deleted_runs.empty() && trims.empty();
  }
};

}  // namespace atl::coordinator
