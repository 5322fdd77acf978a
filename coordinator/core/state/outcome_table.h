// The outcomes of contributions. Each key ends once.
//
// Bounded: each (slot, fragment) keeps its newest outcomes by seq. Seqs up to
// the largest forgotten one count as decided: an island's seq only grows.
//
// Pure. Thread-compatible.

#pragma once

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
  static constexpr size_t kKeptMax = 64;
  // Limit of Newest: one synchronisation of a run with 256 fragments.
  static constexpr size_t kNewestMax = 256;

  bool Contains(const v1::ContributionKey& key) const;

  // Returns the outcome of `key`; null if it is unknown or forgotten.
  const v1::ContributionOutcome* Find(const v1::ContributionKey& key) const;

  // Returns false, and changes nothing, if the key had ended.
  bool Add(const v1::ContributionOutcome& outcome);

  // Forgets the outcomes: every seq up to the newest one counts as ended.
  void ForgetAll();

  // The newest kNewestMax outcomes of `slot`, by seq, then fragment.
  std::vector<v1::ContributionOutcome> Newest(int32_t slot) const;

  // Largest seq of `slot` up to `limit` that has ended; 0 if none has.
  int64_t SeqMax(int32_t slot, int64_t limit) const;

  // The whole table by slot, then fragment; Restore adds a row to a new table.
  std::vector<storage::v1::OutcomesSnapshot> ToSnapshot() const;
  void Restore(const storage::v1::OutcomesSnapshot& row);

  // For tests that compare two tables.
  std::string DebugString() const;

 private:
  struct Row {
    std::map<int64_t, v1::ContributionOutcome> kept;  // By seq.
    int64_t forgotten = 0;  // Every seq up to here has ended.
  };
  std::map<std::pair<int32_t, int32_t>, Row> rows_;  // By (slot, fragment).
};

}  // namespace atl::coordinator
