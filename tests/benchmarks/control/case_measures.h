// The common parts of the cases of the benchmark: sizes, spans, fields.

#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
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
  // Certificates from which a flood comes; in plaintext connections.
  int certificate_count = 1;
  // How long a flood lasts, and how long is measured before it.
  absl::Duration flood = absl::Seconds(15);
  // One round every so often.
  absl::Duration pace = absl::Seconds(5);
};

// A case's own numbers.
struct CaseSize {
  int islands;
  int fragments;
  int servers = 2;
  bool elastic = false;
  int filled_rounds = 1;
  int runs = 0;  // As LoadOptions.run_count.
};

LoadOptions MakeOptions(const CaseOptions& options, const CaseSize& size);

// {"case": `name`, "islands", ...}
Row BeginRow(const std::string& name, const LoadOptions& load);

// Adds the fields of one span; `prefix` is "idle_" or "".
void AddMeasures(const Measures& measures, const std::string& prefix, Row& row);

// Rounds that begin within `span`.
int CountRounds(absl::Duration span, absl::Duration pace);

// Measures rounds without a flood, and then rounds with it, until it has had an
// effect. Further fields of `row`: the 99th percentile of heartbeats during the
// flood as a multiple of the probe's, the memory that it may take, 1.5 times
// the idle one and 64 MiB, and the mean seconds of rounds of all runs but the
// first, idle and during the flood.
absl::Status MeasureFlood(const CaseOptions& options, ControlLoad& load,
                          Row& row, const std::function<void()>& begin_flood,
                          const std::function<bool()>& has_effect,
                          const std::function<void()>& end_flood);

}  // namespace atl::benchmarks
