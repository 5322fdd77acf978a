#include "coordinator/core/state/outcome_table.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "absl/strings/str_cat.h"

namespace atl::coordinator {

const OutcomeTable::Entry* OutcomeTable::FindKept(const Row& row,
                                                  int64_t seq) {
  const auto entry =
      std::lower_bound(row.kept.begin(), row.kept.end(), seq, IsBefore);
  return entry == row.kept.end() || entry->seq != seq ? nullptr : &*entry;
}

bool OutcomeTable::Contains(const v1::ContributionKey& key) const {
  const auto row = rows_.find({key.slot(), key.fragment()});
  if (row == rows_.end()) return false;
  return key.seq() <= row->second.forgotten ||
         FindKept(row->second, key.seq()) != nullptr;
}

v1::Outcome OutcomeTable::Find(const v1::ContributionKey& key) const {
  const auto row = rows_.find({key.slot(), key.fragment()});
  if (row == rows_.end()) return v1::OUTCOME_UNSPECIFIED;
  const Entry* const entry = FindKept(row->second, key.seq());
  return entry == nullptr ? v1::OUTCOME_UNSPECIFIED
                          : static_cast<v1::Outcome>(entry->outcome);
}

void OutcomeTable::Insert(const Place& place, Row& row,
                          const v1::ContributionOutcome& outcome) {
  Entry entry;
  entry.seq = outcome.key().seq();
  entry.run_epoch = outcome.key().run_epoch();
  entry.outcome = static_cast<uint64_t>(outcome.outcome());
  row.kept.insert(std::lower_bound(row.kept.begin(), row.kept.end(), entry.seq,
                                   IsBefore),
                  entry);
  if (!outcome.reason().empty()) {
    reasons_[{place.first, place.second, entry.seq}] = outcome.reason();
  }
}

bool OutcomeTable::Add(const v1::ContributionOutcome& outcome) {
  if (Contains(outcome.key())) return false;
  const Place place = {outcome.key().slot(), outcome.key().fragment()};
  Row& row = rows_[place];
  if (row.kept.size() == kKeptMax) {
    const int64_t oldest = row.kept.front().seq;
    row.forgotten = std::min(oldest, outcome.key().seq());
    if (row.forgotten < oldest) return true;
    row.kept.erase(row.kept.begin());
    reasons_.erase({place.first, place.second, oldest});
  }
  Insert(place, row, outcome);
  return true;
}

void OutcomeTable::ForgetAll() {
  for (auto& [place, row] : rows_) {
    if (row.kept.empty()) continue;
    row.forgotten = row.kept.back().seq;
    row.kept.clear();
  }
  reasons_.clear();
}

v1::ContributionOutcome OutcomeTable::ToOutcome(const Place& place,
                                                const Entry& entry) const {
  v1::ContributionOutcome outcome;
  v1::ContributionKey& key = *outcome.mutable_key();
  key.set_run_epoch(entry.run_epoch);
  key.set_slot(place.first);
  key.set_fragment(place.second);
  key.set_seq(entry.seq);
  outcome.set_outcome(static_cast<v1::Outcome>(entry.outcome));
  const auto reason = reasons_.find({place.first, place.second, entry.seq});
  if (reason != reasons_.end()) outcome.set_reason(reason->second);
  return outcome;
}

std::vector<v1::ContributionOutcome> OutcomeTable::Newest(
    int32_t slot, int64_t after_seq) const {
  std::vector<std::tuple<int64_t, int32_t, const Entry*>> newest;
  for (auto row = rows_.lower_bound(
           {slot, std::numeric_limits<int32_t>::min()});
       row != rows_.end() && row->first.first == slot; ++row) {
    const std::vector<Entry>& kept = row->second.kept;
    for (auto entry = kept.rbegin();
         entry != kept.rend() && entry->seq > after_seq; ++entry) {
      newest.emplace_back(entry->seq, row->first.second, &*entry);
    }
  }
  std::sort(newest.begin(), newest.end());
  const size_t skipped =
      newest.size() - std::min(newest.size(), size_t{kNewestMax});
  std::vector<v1::ContributionOutcome> outcomes;
  outcomes.reserve(newest.size() - skipped);
  for (size_t i = skipped; i < newest.size(); ++i) {
    const auto& [seq, fragment, entry] = newest[i];
    outcomes.push_back(ToOutcome({slot, fragment}, *entry));
  }
  return outcomes;
}

int64_t OutcomeTable::SeqMax(int32_t slot, int64_t limit) const {
  int64_t seq_max = 0;
  for (auto row = rows_.lower_bound(
           {slot, std::numeric_limits<int32_t>::min()});
       row != rows_.end() && row->first.first == slot; ++row) {
    const Row& ended = row->second;
    if (ended.forgotten <= limit) seq_max = std::max(seq_max, ended.forgotten);
    const auto above = std::upper_bound(
        ended.kept.begin(), ended.kept.end(), limit,
        [](int64_t seq, const Entry& entry) { return seq < entry.seq; });
    if (above != ended.kept.begin()) {
      seq_max = std::max(seq_max, std::prev(above)->seq);
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
    for (const Entry& entry : row.kept) {
      *added.add_outcomes() = ToOutcome(place, entry);
    }
  }
  return rows;
}

void OutcomeTable::Restore(const storage::v1::OutcomesSnapshot& row) {
  const Place place = {row.slot(), row.fragment()};
  Row& restored = rows_[place];
  restored.forgotten = row.forgotten_seq();
  for (const v1::ContributionOutcome& outcome : row.outcomes()) {
    if (FindKept(restored, outcome.key().seq()) != nullptr) continue;
    Insert(place, restored, outcome);
  }
}

std::string OutcomeTable::DebugString() const {
  std::string text;
  for (const auto& [place, row] : rows_) {
    absl::StrAppend(&text, "outcomes ", place.first, "/", place.second,
                    " forgotten ", row.forgotten, ":");
    for (const Entry& entry : row.kept) {
      absl::StrAppend(&text, " ", entry.seq, "=", entry.outcome);
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace atl::coordinator
