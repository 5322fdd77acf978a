// Cases of the benchmark: faults, and what a connection takes. Each case starts
// a coordinator of its own.

#pragma once

#include "absl/status/statusor.h"
#include "tests/benchmarks/control/case_measures.h"
#include "tests/benchmarks/control/rows.h"

namespace atl::benchmarks {

// A server restarts without the newest fifth of its contributions. `seconds`
// last from then until the round is committed.
absl::StatusOr<Row> RunLost(const CaseOptions& options);
// All islands join again at once. `seconds` last until all have a plan.
absl::StatusOr<Row> RunRejoin(const CaseOptions& options);
// Fifteen times during a flood's time, each second by default, a tenth of the
// islands leaves an elastic run, and the tenth before joins again.
absl::StatusOr<Row> RunFlap(const CaseOptions& options);
// The coordinator is killed and started. `seconds` last from the kill until 99 %
// of the islands have a plan.
absl::StatusOr<Row> RunRestart(const CaseOptions& options);
// Islands send three times as many messages, for eight times as long as a
// flood. `seconds` last from its end until the 99th percentile of heartbeats is
// at most twice that from before, within one second.
absl::StatusOr<Row> RunOverload(const CaseOptions& options);
// Memory of the coordinator for each island that joins and watches, beside that
// of a bare gRPC server for a connection with an open stream.
absl::StatusOr<Row> RunConnections(const CaseOptions& options);

}  // namespace atl::benchmarks
