#include "worker/island/meter/contribution_tally.h"

namespace atl::worker {

void ContributionTally::Add(const ContributionTally& other) {
  merged_count += other.merged_count;
  late_count += other.late_count;
  stale_count += other.stale_count;
  rejected_count += other.rejected_count;
  dropped_count += other.dropped_count;
  merged_tokens += other.merged_tokens;
  if (!other.rejected_reason.empty()) rejected_reason = other.rejected_reason;
}

void ContributionMeter::Made(int64_t seq, int64_t token_count,
                             int32_t fragment_count) {
  tokens_[seq] =
      static_cast<double>(token_count) / std::max<int32_t>(1, fragment_count);
  while (tokens_.size() > kKeptCountMax) tokens_.erase(tokens_.begin());
}

void ContributionMeter::Joined(const v1::JoinResponse& response) {
  if (first_seq_ > 0) return;
  first_seq_ = std::max<int64_t>(response.next_seq(), 1);
  for (const v1::ContributionInfo& info : response.open_contributions()) {
    if (open_.size() == kOpenCountMax) break;
    const int64_t seq = info.key().seq();
    if (seq >= first_seq_) continue;
    open_.emplace(info.key().fragment(), seq);
    Made(seq, info.token_count(), response.plan().cut_size());
  }
}

bool ContributionMeter::Decided(const v1::ContributionOutcome& outcome) {
  if (!TakeKey(outcome.key())) return false;
  Count(outcome);
  return true;
}

bool ContributionMeter::TakeKey(const v1::ContributionKey& key) {
  if (first_seq_ == 0) return false;
  if (key.seq() < first_seq_) {
    return open_.erase({key.fragment(), key.seq()}) > 0;
  }
  int64_t& newest = counted_seq_[key.fragment()];
  if (key.seq() <= newest) return false;
  newest = key.seq();
  return true;
}

void ContributionMeter::Count(const v1::ContributionOutcome& outcome) {
  switch (outcome.outcome()) {
    case v1::OUTCOME_MERGED: {
      ++tally_.merged_count;
      const auto found = tokens_.find(outcome.key().seq());
      if (found != tokens_.end()) tally_.merged_tokens += found->second;
      return;
    }
    case v1::OUTCOME_LATE:
      ++tally_.late_count;
      return;
    case v1::OUTCOME_STALE:
      ++tally_.stale_count;
      return;
    case v1::OUTCOME_REJECTED:
      ++tally_.rejected_count;
      tally_.rejected_reason = outcome.reason();
      return;
    case v1::OUTCOME_DROPPED:
    case v1::OUTCOME_CANCELLED:
      ++tally_.dropped_count;
      return;
    default:
      return;
  }
}

}  // namespace atl::worker
