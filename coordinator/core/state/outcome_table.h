// How contributions ended: each key once.
//
// Bounded: of every (slot, fragment) the newest outcomes are kept by seq, and
// everything at or below the largest seq that was forgotten counts as decided,
// for an island's seq only grows.
//
// Pure. Thread-compatible.

#ifndef COORDINATOR_CORE_STATE_OUTCOME_TABLE_H_
#define COORDINATOR_CORE_STATE_OUTCOME_TABLE_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/v1/plan.pb.h"

namespace atl::coordinator {

class OutcomeTable {
 public:
  // Outcomes kept of each (slot, fragment).
  static constexpr size_t kKeptMax = 64;
  // What Newest gives at most: one synchronisation of a run with 256 fragments.
  static constexpr size_t kNewestMax = 256;

  // True if `key` has ended.
  bool Contains(const v1::ContributionKey& key) const;

  // How `key` has ended; null if it has not, or if that is forgotten.
  const v1::ContributionOutcome* Find(const v1::ContributionKey& key) const;

  // Records how a contribution ended. False, and nothing changes, if it had
  // ended before.
  bool Add(const v1::ContributionOutcome& outcome);

  // The newest kNewestMax outcomes of `slot`, by seq, then fragment.
  std::vector<v1::ContributionOutcome> Newest(int32_t slot) const;

  // Largest seq of `slot`, at most `limit`, that is known to have ended; 0 if
  // none has.
  int64_t SeqMax(int32_t slot, int64_t limit) const;

  // The whole table as it is written down, by slot, then fragment; and back
  // into an empty table.
  std::vector<storage::v1::OutcomesSnapshot> ToSnapshot() const;
  void Restore(const storage::v1::OutcomesSnapshot& row);

  // For comparing two tables in tests.
  std::string DebugString() const;

 private:
  struct Row {
    std::map<int64_t, v1::ContributionOutcome> kept;  // By seq.
    int64_t forgotten = 0;  // Every seq up to here has ended.
  };
  std::map<std::pair<int32_t, int32_t>, Row> rows_;  // By (slot, fragment).
};

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_STATE_OUTCOME_TABLE_H_
