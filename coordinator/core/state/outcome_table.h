// The outcomes of contributions. Each key ends once.
//
// Bounded: each (slot, fragment) keeps its newest outcomes by seq, in 16 bytes
// each and the reason, if there is one. Seqs up to the largest forgotten one
// count as decided: an island's seq only grows.
//
// Pure. Thread-compatible.

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
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

  // Returns the outcome of `key`; OUTCOME_UNSPECIFIED if it is unknown or
  // forgotten.
  v1::Outcome Find(const v1::ContributionKey& key) const;

  // Returns false, and changes nothing, if the key had ended.
  bool Add(const v1::ContributionOutcome& outcome);

  // Forgets the outcomes: every seq up to the newest one counts as ended.
  void ForgetAll();

  // The newest kNewestMax outcomes of `slot` with a seq above `after_seq`, by
  // seq, then fragment.
  std::vector<v1::ContributionOutcome> Newest(int32_t slot,
                                              int64_t after_seq = 0) const;

  // Largest seq of `slot` up to `limit` that has ended; 0 if none has.
  int64_t SeqMax(int32_t slot, int64_t limit) const;

  // The whole table by slot, then fragment; Restore adds a row to a new table.
  std::vector<storage::v1::OutcomesSnapshot> ToSnapshot() const;
  void Restore(const storage::v1::OutcomesSnapshot& row);

  // For tests that compare two tables.
  std::string DebugString() const;

 private:
  using Place = std::pair<int32_t, int32_t>;  // Slot, fragment.
  struct Entry {
    int64_t seq = 0;
    int64_t run_epoch : 56 = 0;
    uint64_t outcome : 8 = 0;
  };
  struct Row {
    std::vector<Entry> kept;  // By seq.
    int64_t forgotten = 0;    // Every seq up to here has ended.
  };
  static_assert(sizeof(Entry) == 16);
  static bool IsBefore(const Entry& entry, int64_t seq) {
    return entry.seq < seq;
  }
  // Null: the row does not keep it.
  static const Entry* FindKept(const Row& row, int64_t seq);
  void Insert(const Place& place, Row& row,
              const v1::ContributionOutcome& outcome);
  v1::ContributionOutcome ToOutcome(const Place& place,
                                    const Entry& entry) const;

  std::map<Place, Row> rows_;
  // Reasons of kept entries, by slot, fragment and seq.
  std::map<std::tuple<int32_t, int32_t, int64_t>, std::string> reasons_;
};

}  // namespace atl::coordinator
