// Keeps Observations::index and the marks of what must be decided again up to
// date. Each function costs what has changed: a report is compared with what the
// index has of the shard, and only contributions that differ are judged again.
//
// Pure. Thread-compatible.

#pragma once

#include <cstdint>

#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/v1/server_service.pb.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// Makes room for the fragments, shards and members of `state`.
void ResizeObservations(const RunState& state, Observations& observed);

// How a report differs from the shard's report before.
struct ReportDifference {
  bool contributions = false;  // It names others, or has others of them.
  bool refusals = false;       // It refuses others.
};

// True if `report` is whole, or if it comes after the shard's newest report,
// changes that one, and reports of changes together take little enough memory.
bool CanTake(const ObservedShard& shard, int64_t report_seq,
             const v1::ShardReport& report);

// `report` is the newest one of `shard` and has this report_seq. Moves from it.
// Requires: it is of the run's epoch; CanTake.
ReportDifference TakeReport(const RunState& state, int32_t shard,
                            int64_t report_seq, v1::ShardReport& report,
                            Observations& observed);

// The server of `shard` has restarted, or the shard has another server: its
// report no longer counts. Contributions that it has had still do.
void ForgetReport(const RunState& state, int32_t shard, Observations& observed);

// `record` was applied to `state`.
void TakeRecord(const RunState& state, const storage::v1::Record& record,
                Observations& observed);

// The machine continues from a log: shards must have what rounds have sealed.
void TakeSealed(const RunState& state, Observations& observed);

// The run has begun a new epoch: no report counts.
void ForgetReports(Observations& observed);

// Judges the contribution at `place` again.
void JudgeAgain(const RunState& state, const ContributionPlace& place,
                Observations& observed);

// The contribution at `place` was judged, or is seen no longer: decisions that look
// only at such ones look at it.
void NoteJudged(const RunState& state, const ContributionPlace& place,
                Observations& observed);

// The infos of `fragment`'s sealed round have a contribution with this slot and
// seq; null: they do not, or no round is sealed.
const storage::v1::SealedInfo* FindSealed(const FragmentState& fragment,
                                          const SlotSeq& place);

// An island with `slot` claims another speed, so that rounds may count its
// contributions at other times. `claim`: ReportProgressRequest.tokens_per_second.
// False if that changes nothing.
bool NoteClaim(const RunState& state, int32_t slot, double claim,
               Observations& observed);

// The speeds of islands have changed: marks the rounds that read them.
void SetDueBySpeeds(const RunState& state, Observations& observed);

}  // namespace atl::coordinator
