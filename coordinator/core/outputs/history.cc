#include "coordinator/core/outputs/history.h"

#include <algorithm>

#include "coordinator/core/outputs/audit_rows.h"

namespace atl::coordinator {
namespace {

// Smallest commit_seq to keep if the newest one were `commit_seq`, rounded down
// to a step.
int64_t FirstKept(const RunState& state, int64_t commit_seq) {
  int64_t keep = state.spec().history().keep_round_count();
  if (keep == 0) keep = kKeepRoundCountDefault;
  keep *= static_cast<int64_t>(state.fragments().size());
  const int64_t step = commit_seq - commit_seq % kTrimCommitCount;
  int64_t first = step - keep + 1;
  // A log that took the place of a lost one jumped over numbers.
  for (auto restore = state.restores().rbegin();
       restore != state.restores().rend() && restore->before_commit_seq() > 0 &&
       first <= restore->commit_seq();
       ++restore) {
    first -= restore->commit_seq() - 1 - restore->before_commit_seq();
  }
  first = std::max<int64_t>(1, first);
  for (const auto& [pin_id, state_of_pin] : state.pins()) {
    const v1::Pin& pin = state_of_pin.pin_set().pin();
    if (pin.keep_bytes_max() > 0) {
      first = std::min(first, pin.commit_seq());
    }
  }
  return std::max(first, state.history_begin());
}

}  // namespace

std::optional<HistoryRow> ToHistory(const LogEntry& entry) {
  const storage::v1::Record& record = entry.record;
  if (record.has_round_committed()) {
    const v1::Round& round = record.round_committed().round();
    return HistoryRow{entry.run_id, HistoryTable::kRounds, round.commit_seq(),
                      round.SerializeAsString()};
  }
  if (record.has_evaluated()) {
    const v1::Evaluation& evaluation = record.evaluated().evaluation();
    return HistoryRow{entry.run_id, HistoryTable::kEvaluations,
                      evaluation.version(), evaluation.SerializeAsString()};
  }
  if (record.has_audit()) {
    return HistoryRow{entry.run_id, FindAuditTable(record.audit()),
                      record.revision(), record.audit().SerializeAsString()};
  }
  return std::nullopt;
}

int64_t FirstKeptCommit(const RunState& state) {
  return FirstKept(state, state.commit_seq());
}

bool EndsTrimStep(const storage::v1::Record& record) {
  return record.has_round_committed() &&
         record.round_committed().commit().commit_seq() % kTrimCommitCount == 0;
}

void AddTrims(const RunState& state, Batch& batch) {
  const int64_t first = FirstKept(state, state.commit_seq() - kTrimCommitCount);
  if (first <= 1) return;
  batch.trims.push_back({state.run_id(), HistoryTable::kRounds, first});
  // A commit raises the version of fragment 0 by at most 1, so kept rounds of
  // fragment 0 made no smaller version than this.
  const int64_t version =
      state.fragments()[0].newest.version() - (state.commit_seq() - first);
  if (version > 0) {
    batch.trims.push_back(
        {state.run_id(), HistoryTable::kEvaluations, version});
  }
}

}  // namespace atl::coordinator
