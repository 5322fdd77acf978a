// What became of an island's contributions. Pure. Thread-compatible.

#pragma once

#include <cstdint>
#include <map>
#include <string>

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
  std::string rejected_reason;  // Of the newest rejected one.

  void Add(const ContributionTally& other);
};

class ContributionMeter {
 public:
  // The contribution `seq` was made of `token_count` tokens; `fragment_count`
  // is the run's.
  void Made(int64_t seq, int64_t token_count, int32_t fragment_count);
  // The outcome of a contribution of one fragment; call it once for each.
  void Decided(const v1::ContributionOutcome& outcome);

  const ContributionTally& tally() const { return tally_; }

 private:
  static constexpr size_t kKeptCountMax = 64;

  std::map<int64_t, double> tokens_;  // A fragment's share, by seq.
  ContributionTally tally_;
};

}  // namespace atl::worker
