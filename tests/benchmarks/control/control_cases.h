// Cases of the benchmark: a fault, or a caller that wants too much. Each case
// starts a coordinator of its own.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/benchmarks/control/control_load.h"
#include "tests/benchmarks/control/rows.h"

namespace atl::benchmarks {

struct CaseOptions {
  std::string directory;
  std::string coordinator_binary;
  bool tls = false;
  // Islands; 0: the case's own number.
  int island_count = 0;
  // How long a flood lasts, and how long is measured before it.
  absl::Duration flood = absl::Seconds(15);
  // One round every so often.
  absl::Duration pace = absl::Seconds(5);
};

using Case = absl::StatusOr<Row> (*)(const CaseOptions& options);

// A reader keeps 200 GetRun of a run with 30,000 tensors outstanding.
absl::StatusOr<Row> RunGetRunFlood(const CaseOptions& options);
// A caller opens 4096 WatchRun streams.
absl::StatusOr<Row> RunWatchRunFlood(const CaseOptions& options);
// One island joins again and again.
absl::StatusOr<Row> RunJoinFlood(const CaseOptions& options);
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

}  // namespace atl::benchmarks
