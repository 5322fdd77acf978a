// Holds what the coordinator keeps of reports against what a whole look at all
// reports gives, as it was done before there was an index.
//
// Thread-compatible.

#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/core/run_machine.h"
#include "coordinator/core/state/contribution_index.h"

namespace atl::coordinator {

// The undecided contributions of `fragment` that the reports name, or that `had`
// of a shard has. `reports`, `had`: by shard.
SeenContributions CollectContributions(
    const RunState& state, const std::vector<ObservedShard>& shards,
    const std::vector<v1::ShardReport>& reports,
    const std::vector<std::map<ContributionPlace, v1::ContributionInfo>>& had,
    int32_t fragment);

class IndexOracle {
 public:
  // Fails the test if the index, the ended contributions or the recalls of
  // `machine` are not those of `reports`: of each shard that has reported, the
  // whole report that says what its newest report and those before say. Call it
  // after each event.
  void Check(const RunMachine& machine,
             const std::vector<v1::ShardReport>& reports);

  // Fails the test if a look at all contributions, and not at the newly judged
  // ones alone, would settle or measure one, or find another standing of an open
  // round; or if newly judged ones are left. Requires: `machine` has decided
  // everything at `now`, and the run has started.
  void CheckJudged(const RunMachine& machine, absl::Time now) const;

 private:
  // By shard: the undecided contributions that it has had.
  std::vector<std::map<ContributionPlace, v1::ContributionInfo>> had_;
  int64_t run_epoch_ = 0;
};

}  // namespace atl::coordinator
