// The history of a run: which rows a record adds, and which are trimmed.
//
// A run of F fragments keeps the rounds of its newest keep_round_count * F
// commits. Readers are offered those after the newest multiple of
// kTrimCommitCount; the rows are deleted one step later. So a page that was
// planned before a batch can still be read after it. A pin that keeps
// contributions also keeps the rounds after its cut, for a replay.
//
// Pure. Thread-safe.

#pragma once

#include <cstdint>
#include <optional>

#include "coordinator/core/outputs/batch.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// HistorySpec.keep_round_count if it is 0.
inline constexpr int64_t kKeepRoundCountDefault = 10000;
// Commits between two trims.
inline constexpr int64_t kTrimCommitCount = 64;

// The history row of a COMMIT, an evaluation or an audited event; nullopt for
// other records.
std::optional<HistoryRow> ToHistory(const LogEntry& entry);

// Smallest commit_seq that readers are offered, at least 1.
int64_t FirstKeptCommit(const RunState& state);

// True for every kTrimCommitCount-th COMMIT: AddTrims is then due.
bool EndsTrimStep(const storage::v1::Record& record);
// Adds the trims of a run: rounds, and evaluations of trimmed rounds.
void AddTrims(const RunState& state, Batch& batch);

}  // namespace atl::coordinator
