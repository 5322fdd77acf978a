// An island of the round benchmark: the real path without training.
//
// It joins, pulls, pushes and follows the plan with the islands' clients.
// Unlike an island it takes no inner steps, and writes no local checkpoint
// before the push.

#pragma once

#include <string>

namespace atl::benchmarks {

struct RoundIslandOptions {
  std::string coordinator;  // HOST:PORT
  std::string run_id;
  std::string island_id;
  int index = 0;         // Of the outer gradient it pushes (vectors.h).
  int island_count = 1;  // Islands in the expected mean.
  // Files to map instead of own memory, so that many islands of a large model
  // fit on one machine: the prefilled outer gradient, and the target of pulls.
  // Islands that share the target must pull the same version.
  std::string shared_gradient;
  std::string shared_parameters;
};

// Joins `run_id` as `island_id` and answers "ready". Then follows orders on
// standard input:
//   "open V"   waits until round V takes contributions and all earlier commits
//              are durable; answers "open"
//   "go V"     encodes (or computes the digest) and pushes; answers
//              "pushed BEGIN END CPU SENT" in nanoseconds: begin and end of the
//              push by the monotonic clock, this process's CPU time for it, and
//              when the last payload byte had gone to the network. Waits for
//              the commit of V + 1; answers "committed TIME". Pulls and checks
//              that version; answers "done"
//   "check V"  answers "ok", or the fault after V rounds
//   "count V"  answers "counted SENT RECEIVED": payload bytes since the join
// Returns the process's exit status; errors go to standard error.
int RunIsland(const RoundIslandOptions& options);

}  // namespace atl::benchmarks
