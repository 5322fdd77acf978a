#include "coordinator/core/state/outcome_table.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace atl::coordinator {

bool OutcomeTable::Contains(const v1::ContributionKey& key) const {
  const auto row = rows_.find({key.slot(), key.fragment()});
  if (row == rows_.end()) return false;
  return key.seq() <= row->second.forgotten ||
         row->second.kept.contains(key.seq());
}

const v1::ContributionOutcome* OutcomeTable::Find(
    const v1::ContributionKey& key) const {
  const auto row = rows_.find({key.slot(), key.fragment()});
  if (row == rows_.end()) return nullptr;
  const auto outcome = row->second.kept.find(key.seq());
  return outcome == row->second.kept.end() ? nullptr : &outcome->second;
}

bool OutcomeTable::Add(const v1::ContributionOutcome& outcome) {
  if (Contains(outcome.key())) return false;
  Row& row = rows_[{outcome.key().slot(), outcome.key().fragment()}];
  row.kept.emplace(outcome.key().seq(), outcome);
  if (row.kept.size() > kKeptMax) {
    row.forgotten = row.kept.begin()->first;
    row.kept.erase(row.kept.begin());
  }
  return true;
}

void OutcomeTable::ForgetAll() {
  for (auto& [place, row] : rows_) {
    if (row.kept.empty()) continue;
    row.forgotten = row.kept.rbegin()->first;
    row.kept.clear();
  }
}

std::vector<v1::ContributionOutcome> OutcomeTable::Newest(int32_t slot) const {
  std::vector<v1::ContributionOutcome> newest;
  for (auto row = rows_.lower_bound({slot, 0});
       row != rows_.end() && row->first.first == slot; ++row) {
    for (const auto& [seq, outcome] : row->second.kept) {
      newest.push_back(outcome);
    }
  }
  const auto order = [](const v1::ContributionOutcome& outcome) {
    return std::make_tuple(outcome.key().seq(), outcome.key().fragment());
  };
  std::sort(newest.begin(), newest.end(),
            [&](const auto& a, const auto& b) { return order(a) < order(b); });
  if (newest.size() > kNewestMax) {
    newest.erase(newest.begin(), newest.end() - kNewestMax);
  }
  return newest;
}

int64_t OutcomeTable::SeqMax(int32_t slot, int64_t limit) const {
  int64_t seq_max = 0;
  for (auto row = rows_.lower_bound({slot, 0});
       row != rows_.end() && row->first.first == slot; ++row) {
    const Row& ended = row->second;
    if (ended.forgotten <= limit) seq_max = std::max(seq_max, ended.forgotten);
    const auto above = ended.kept.upper_bound(limit);
    if (above != ended.kept.begin()) {
      seq_max = std::max(seq_max, std::prev(above)->first);
    }
  }
  return seq_max;
}

std::vector<storage::v1::OutcomesSnapshot> OutcomeTable::ToSnapshot() const {
  std::vector<storage::v1::OutcomesSnapshot> rows;
  for (const auto& [place, row] : rows_) {
    storage::v1::OutcomesSnapshot& added = rows.emplace_back();
    added.set_slot(place.first);
    added.set_fragment(place.second);
    added.set_forgotten_seq(row.forgotten);
    for (const auto& [seq, outcome] : row.kept) {
      *added.add_outcomes() = outcome;
    }
  }
  return rows;
}

void OutcomeTable::Restore(const storage::v1::OutcomesSnapshot& row) {
  Row& restored = rows_[{row.slot(), row.fragment()}];
  restored.forgotten = row.forgotten_seq();
  for (const v1::ContributionOutcome& outcome : row.outcomes()) {
    restored.kept.emplace(outcome.key().seq(), outcome);
  }
}

std::string OutcomeTable::DebugString() const {
  std::string text;
  for (const auto& [place, row] : rows_) {
    absl::StrAppend(&text, "outcomes ", place.first, "/", place.second,
                    " forgotten ", row.forgotten, ":");
    for (const auto& [seq, outcome] : row.kept) {
      absl::StrAppend(&text, " ", seq, "=", outcome.outcome());
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace atl::coordinator
