// Counts the outcomes of an island's contributions. Pure. Thread-compatible.

#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/plan.pb.h"

namespace atl::worker {

// Counts of contributions, each of one fragment.
struct ContributionTally {
  int64_t merged_count = 0;
  int64_t late_count = 0;
  int64_t stale_count = 0;
  int64_t rejected_count = 0;
  int64_t dropped_count = 0;  // Also those that the run's end cut off.
  // Trained tokens behind the merged ones. A contribution of one of P fragments
  // counts for a P-th of its tokens.
  double merged_tokens = 0;
  std::string rejected_reason;  // Reason of the newest rejection.

  // All that were decided.
  int64_t count() const {
    return merged_count + late_count + stale_count + rejected_count +
           dropped_count;
  }
  void Add(const ContributionTally& other);
};

// Counts the contributions that an island's process makes, and those of the
// process before it that were undecided when this one joined.
class ContributionMeter {
 public:
  // The answer to the first Join; later ones change nothing. Before it nothing
  // is counted.
  void Joined(const v1::JoinResponse& response);
  // The contribution `seq` was made of `token_count` tokens; `fragment_count`
  // is the run's.
  void Made(int64_t seq, int64_t token_count, int32_t fragment_count);
  // The outcome of a contribution of one fragment. False, and nothing is
  // counted, if it was counted before or is none of these contributions.
  // Outcomes of a fragment come in the order of seq.
  bool Decided(const v1::ContributionOutcome& outcome);

  const ContributionTally& tally() const { return tally_; }

 private:
  static constexpr size_t kKeptCountMax = 64;
  static constexpr size_t kOpenCountMax = 1024;

  // Returns true if `key` must be counted: at most once for each key.
  bool TakeKey(const v1::ContributionKey& key);
  void Count(const v1::ContributionOutcome& outcome);

  int64_t first_seq_ = 0;  // This process's first seq; 0: not joined.
  // (fragment, seq) of undecided contributions of the process before.
  std::set<std::pair<int32_t, int64_t>> open_;
  std::map<int32_t, int64_t> counted_seq_;  // The newest, by fragment.
  std::map<int64_t, double> tokens_;  // A fragment's share, by seq.
  ContributionTally tally_;
};

}  // namespace atl::worker
