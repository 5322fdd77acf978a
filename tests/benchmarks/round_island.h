// An island of the round benchmark: all of the real path but the training.
//
// It joins, pulls, pushes and follows the plan with the clients that islands
// use. What an island does besides and this does not: inner steps, and the SAVE
// before the push.

#ifndef TESTS_BENCHMARKS_ROUND_ISLAND_H_
#define TESTS_BENCHMARKS_ROUND_ISLAND_H_

#include <string>

namespace atl::benchmarks {

// Joins `run_id` as `island_id` and answers "ready". Then follows orders on
// standard input:
//   "open V"   waits until round V takes contributions and what was committed
//              before is durable; answers "open"
//   "go V"     computes the digest, pushes, answers "pushed BEGIN END CPU":
//   when
//              the push began and ended by the monotonic clock, and what this
//              process has used of the processor for it, in nanoseconds; waits
//              for the commit of V + 1 and pulls it, checked; answers "done"
//   "check V"  answers "ok", or what is wrong after V rounds
// Returns the process's exit status; errors go to standard error.
int RunIsland(const std::string& coordinator, const std::string& run_id,
              const std::string& island_id, int index, int island_count);

}  // namespace atl::benchmarks

#endif  // TESTS_BENCHMARKS_ROUND_ISLAND_H_
