#include "coordinator/core/state/outcome_table.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

v1::ContributionOutcome MakeOutcome(int32_t slot, int32_t fragment, int64_t seq,
                                    const std::string& reason = "") {
  v1::ContributionOutcome outcome;
  v1::ContributionKey& key = *outcome.mutable_key();
  key.set_run_epoch(int64_t{1} << 40);
  key.set_slot(slot);
  key.set_fragment(fragment);
  key.set_seq(seq);
  outcome.set_outcome(reason.empty() ? v1::OUTCOME_MERGED
                                     : v1::OUTCOME_REJECTED);
  outcome.set_reason(reason);
  return outcome;
}

// The same table as whole messages in maps.
class PlainTable {
 public:
  bool Add(const v1::ContributionOutcome& outcome) {
    Row& row = rows_[{outcome.key().slot(), outcome.key().fragment()}];
    if (outcome.key().seq() <= row.forgotten ||
        !row.kept.emplace(outcome.key().seq(), outcome).second) {
      return false;
    }
    if (row.kept.size() > OutcomeTable::kKeptMax) {
      row.forgotten = row.kept.begin()->first;
      row.kept.erase(row.kept.begin());
    }
    return true;
  }

  void ForgetAll() {
    for (auto& [place, row] : rows_) {
      if (row.kept.empty()) continue;
      row.forgotten = row.kept.rbegin()->first;
      row.kept.clear();
    }
  }

  std::string Newest(int32_t slot, int64_t after_seq) const {
    std::map<std::pair<int64_t, int32_t>, std::string> ordered;
    for (const auto& [place, row] : rows_) {
      for (const auto& [seq, outcome] : row.kept) {
        if (place.first != slot || seq <= after_seq) continue;
        ordered[{seq, place.second}] = outcome.ShortDebugString();
      }
    }
    while (ordered.size() > OutcomeTable::kNewestMax) {
      ordered.erase(ordered.begin());
    }
    std::string text;
    for (const auto& [place, outcome] : ordered) text += outcome + "\n";
    return text;
  }

  std::string Snapshot() const {
    std::string text;
    for (const auto& [place, row] : rows_) {
      storage::v1::OutcomesSnapshot snapshot;
      snapshot.set_slot(place.first);
      snapshot.set_fragment(place.second);
      snapshot.set_forgotten_seq(row.forgotten);
      for (const auto& [seq, outcome] : row.kept) {
        *snapshot.add_outcomes() = outcome;
      }
      text += snapshot.ShortDebugString() + "\n";
    }
    return text;
  }

 private:
  struct Row {
    std::map<int64_t, v1::ContributionOutcome> kept;
    int64_t forgotten = 0;
  };
  std::map<std::pair<int32_t, int32_t>, Row> rows_;
};

std::string ListNewest(const OutcomeTable& table, int32_t slot,
                       int64_t after_seq) {
  std::string text;
  for (const v1::ContributionOutcome& outcome : table.Newest(slot, after_seq)) {
    text += outcome.ShortDebugString() + "\n";
  }
  return text;
}

std::string Snapshot(const OutcomeTable& table) {
  std::string text;
  for (const storage::v1::OutcomesSnapshot& row : table.ToSnapshot()) {
    text += row.ShortDebugString() + "\n";
  }
  return text;
}

TEST(OutcomeTableTest, KeepsWhatAPlainTableOfMessagesKeeps) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  const auto pick = [&](int64_t count) {
    return std::uniform_int_distribution<int64_t>(0, count - 1)(random);
  };
  OutcomeTable table;
  PlainTable plain;
  int64_t base = 1;
  for (int step = 0; step < 6000; ++step) {
    if (pick(1500) == 0) {
      table.ForgetAll();
      plain.ForgetAll();
    }
    base += pick(2);
    // Mostly in order; some late, and some twice.
    const int64_t seq = std::max<int64_t>(1, base - pick(80));
    const v1::ContributionOutcome outcome =
        MakeOutcome(static_cast<int32_t>(pick(3)),
                    static_cast<int32_t>(pick(5)), seq,
                    pick(4) == 0 ? "why " + std::to_string(step) : "");
    ASSERT_EQ(table.Add(outcome), plain.Add(outcome)) << "step " << step;
    if (step % 50 != 0) continue;
    const int64_t after = base - pick(200);
    for (int32_t slot = 0; slot < 3; ++slot) {
      ASSERT_EQ(ListNewest(table, slot, 0), plain.Newest(slot, 0));
      ASSERT_EQ(ListNewest(table, slot, after), plain.Newest(slot, after));
    }
    ASSERT_EQ(Snapshot(table), plain.Snapshot());
    OutcomeTable restored;
    for (const auto& row : table.ToSnapshot()) restored.Restore(row);
    ASSERT_EQ(Snapshot(restored), plain.Snapshot());
    ASSERT_EQ(restored.DebugString(), table.DebugString());
  }
}

TEST(OutcomeTableTest, AnOutcomeIsFoundUntilItIsForgotten) {
  OutcomeTable table;
  EXPECT_EQ(table.Find(MakeOutcome(1, 0, 1).key()), v1::OUTCOME_UNSPECIFIED);
  const auto count = static_cast<int64_t>(OutcomeTable::kKeptMax);
  for (int64_t seq = 1; seq <= count + 1; ++seq) {
    ASSERT_TRUE(table.Add(MakeOutcome(1, 0, seq, seq == 2 ? "NaN" : "")));
  }
  EXPECT_EQ(table.Find(MakeOutcome(1, 0, 1).key()), v1::OUTCOME_UNSPECIFIED);
  EXPECT_TRUE(table.Contains(MakeOutcome(1, 0, 1).key()));
  EXPECT_EQ(table.Find(MakeOutcome(1, 0, 2).key()), v1::OUTCOME_REJECTED);
  EXPECT_EQ(table.Newest(1).front().reason(), "NaN");
  EXPECT_EQ(table.Find(MakeOutcome(1, 0, 3).key()), v1::OUTCOME_MERGED);
  EXPECT_EQ(table.Find(MakeOutcome(1, 1, 3).key()), v1::OUTCOME_UNSPECIFIED);
}

}  // namespace
}  // namespace atl::coordinator
