#include "coordinator/core/outputs/history.h"

namespace atl::coordinator {

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
  return std::nullopt;
}

}  // namespace atl::coordinator
