// An island of the round benchmark: all of the real path but the training.
//
// It joins, pulls, pushes and follows the plan with the clients that islands
// use. What an island does besides and this does not: inner steps, and the SAVE
// before the push.

#pragma once

#include <string>

namespace atl::benchmarks {

struct RoundIslandOptions {
  std::string coordinator;  // HOST:PORT
  std::string run_id;
  std::string island_id;
  int index = 0;         // Whose outer gradient it pushes (vectors.h).
  int island_count = 1;  // Of those whose mean it expects.
  // Files to map in place of memory of its own, so that many islands of a large
  // model find room on one machine: the outer gradient, which is there already,
  // and where to pull to. All that share the latter pull the same version.
  std::string shared_gradient;
  std::string shared_parameters;
};

// Joins `run_id` as `island_id` and answers "ready". Then follows orders on
// standard input:
//   "open V"   waits until round V takes contributions and what was committed
//              before is durable; answers "open"
//   "go V"     encodes, or computes the digest, pushes, answers
//              "pushed BEGIN END CPU SENT": when the push began and ended by
//              the monotonic clock, what this process has used of the processor
//              for it, and when the last of its payload had gone to the
//              network, in nanoseconds;
//              waits for the commit of V + 1, answers "committed TIME"; pulls
//              it, checked; answers "done"
//   "check V"  answers "ok", or what is wrong after V rounds
//   "count V"  answers "counted SENT RECEIVED": payload bytes since the join
// Returns the process's exit status; errors go to standard error.
int RunIsland(const RoundIslandOptions& options);

}  // namespace atl::benchmarks
