// Cases of the benchmark in which callers want too much. A flood comes from
// CaseOptions.certificate_count certificates. Each case starts a coordinator of
// its own.

#pragma once

#include "absl/status/statusor.h"
#include "tests/benchmarks/control/case_measures.h"
#include "tests/benchmarks/control/rows.h"

namespace atl::benchmarks {

// Readers keep GetRun of a run with 30,000 tensors outstanding: 200 from one
// certificate, 1000 from several. The same holds for the next three.
absl::StatusOr<Row> RunGetRunFlood(const CaseOptions& options);
// ListRounds of a run with 16 rounds of 50 islands and 8 fragments.
absl::StatusOr<Row> RunListRoundsFlood(const CaseOptions& options);
// ListIslands of a run with 300 islands.
absl::StatusOr<Row> RunListIslandsFlood(const CaseOptions& options);
// A gate asks for certificates with a token that does not exist.
absl::StatusOr<Row> RunEnrolmentFlood(const CaseOptions& options);
// Readers open WatchRun streams: 256 from one certificate, 4096 from several.
absl::StatusOr<Row> RunWatchRunFlood(const CaseOptions& options);
// Each certificate's island joins again and again.
absl::StatusOr<Row> RunJoinFlood(const CaseOptions& options);
// Readers connect, make no call and connect again, 64 at a time.
absl::StatusOr<Row> RunHandshakeFlood(const CaseOptions& options);
// The floor: a bare gRPC server that answers as many calls at once, from as many
// certificates, with nothing to do, and heartbeats of 50 islands beside them.
absl::StatusOr<Row> RunBareFlood(const CaseOptions& options);
// Five runs of 200 islands: in the first one, islands of its own join again and
// again, and send GetRun, ListRounds and ListIslands without an end.
absl::StatusOr<Row> RunFiveRuns(const CaseOptions& options);

}  // namespace atl::benchmarks
