#include "server/live_merge/live_rounds.h"

#include <utility>

#include "base/failpoint/test_point.h"
#include "base/status/status_macros.h"

namespace atl::server {

// Destroys a live merger before it is no longer counted.
class LiveRounds::Counted {
 public:
  Counted(std::shared_ptr<Count> mergers, std::shared_ptr<LiveMerger> merger)
      : mergers_(std::move(mergers)), merger_(std::move(merger)) {
    MutexLock lock(&mergers_->mutex);
    ++mergers_->count;
  }
  ~Counted() {
    merger_.reset();
    MutexLock lock(&mergers_->mutex);
    --mergers_->count;
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  LiveMerger* merger() const { return merger_.get(); }

 private:
  const std::shared_ptr<Count> mergers_;
  std::shared_ptr<LiveMerger> merger_;
};

LiveRounds::Round LiveRounds::Take(int32_t fragment) {
  MutexLock lock(&mutex_);
  return std::exchange(rounds_[fragment], {});
}

absl::Status LiveRounds::Start(int32_t fragment, const LiveSet& set) {
  Round old = Take(fragment);
  if (old.merger != nullptr) {
    for (const ContributionKey& key : old.merger->set().keys) {
      waiters_.Tell(key, &PushWaiter::OnRestart);
    }
    TestPoint("a set is given up");
    old = {};
  }
  if (set.keys.empty()) return absl::OkStatus();
  Round made;
  made.contributions = store_.contributions().Renew(set.keys, set.id);
  if (made.contributions.size() != set.keys.size()) {
    return absl::UnavailableError("a contribution is no longer bound");
  }
  ASSIGN_OR_RETURN(std::shared_ptr<LiveMerger> merger,
                   LiveMerger::Create(store_, optimizer_, rule_, set));
  const auto counted = std::make_shared<Counted>(mergers_, std::move(merger));
  made.merger = std::shared_ptr<LiveMerger>(counted, counted->merger());
  budget_.AddSet(made.merger);
  {
    MutexLock lock(&mutex_);
    rounds_[fragment] = std::move(made);
  }
  for (const ContributionKey& key : set.keys) {
    waiters_.Tell(key, &PushWaiter::OnLiveMerge);
  }
  TestPoint("a live merge begins");
  return absl::OkStatus();
}

absl::StatusOr<PreparedFact> LiveRounds::Prepare(const v1::Seal& seal) {
  std::shared_ptr<LiveMerger> merger;
  {
    MutexLock lock(&mutex_);
    merger = rounds_[seal.fragment()].merger;
  }
  if (merger == nullptr || !merger->set().Merges(seal)) {
    return absl::FailedPreconditionError("another set was merged");
  }
  return merger->Publish(seal.attempt());
}

std::shared_ptr<const void> LiveRounds::End(int32_t fragment) {
  return std::make_shared<const Round>(Take(fragment));
}

bool LiveRounds::EndAll() {
  std::map<int32_t, Round> rounds;
  {
    MutexLock lock(&mutex_);
    rounds.swap(rounds_);
  }
  rounds.clear();
  MutexLock lock(&mergers_->mutex);
  return mergers_->count == 0;
}

LivePlace LiveRounds::Find(const ContributionKey& key) const {
  LivePlace found;
  MutexLock lock(&mutex_);
  const auto it = rounds_.find(key.fragment);
  if (it == rounds_.end() || it->second.merger == nullptr) return found;
  const Round& round = it->second;
  const std::vector<ContributionKey>& keys = round.merger->set().keys;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!(keys[i] == key)) continue;
    found.contribution = round.contributions[i];
    found.live_merger = round.merger;
    found.index = static_cast<int>(i);
  }
  return found;
}

}  // namespace atl::server
