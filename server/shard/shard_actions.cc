// What the machine's actions do: each runs on a queue of ShardResources.

#include "server/shard/shard.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/failpoint/failpoint.h"
#include "base/failpoint/test_point.h"
#include "base/layout/digest.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "server/shard/decided_status.h"

namespace atl::server {

void Shard::RunMakeVersion0(const Action& action) {
  const absl::StatusOr<Digest128> digest =
      resources_.merger.MakeVersion0(*store_, *optimizer_, action.fragment);
  absl::Status status = digest.status();
  if (status.ok()) status = store_->versions().PersistVersion0(action.fragment);
  if (status.ok()) {
    {
      MutexLock lock(&mutex_);
      machine_.OnVersion0(action.fragment, *digest);
    }
    DropImports();
  }
  Ended(action, status);
}

void Shard::DropImports() {
  std::vector<ContributionKey> keys;
  {
    MutexLock lock(&mutex_);
    for (int32_t f = 0; f < store_->layout().fragment_count(); ++f) {
      const auto key = ContributionKey::OfImport(f);
      if (machine_.version(f) >= 0 && store_->contributions().Find(key) != nullptr) {
        keys.push_back(key);
      }
    }
  }
  if (keys.empty()) return;
  const absl::Status dropped = store_->contributions().Drop(keys);
  if (!dropped.ok()) {
    LOG(WARNING) << "run " << store_->run().run_id()
                 << ": an import that is version 0 keeps its space until the "
                    "next start: "
                 << dropped.ToString();
  }
}

void Shard::RunMeasure(const Action& action) {
  const absl::Time begin = absl::Now();
  failpoint::Hit("server.measured.before");
  absl::StatusOr<MeasuredFact> measured =
      resources_.merger.Measure(*store_, *rule_, action.seal);
  if (measured.ok()) {
    LOG(INFO) << "run " << store_->run().run_id() << ": " << action.ToString()
              << " took " << absl::FormatDuration(absl::Now() - begin);
    MutexLock lock(&mutex_);
    machine_.OnMeasured(*std::move(measured));
    failpoint::Hit("server.measured.after");
  }
  absl::Status status = measured.status();
  if (absl::IsDataLoss(status)) status = LoseDamaged(action.seal, status);
  Ended(action, status);
}

void Shard::RunLiveMerge(const Action& action) {
  const LiveSet& set = action.live_merge;
  MergedLive old;
  {
    MutexLock lock(&mutex_);
    old = std::exchange(merged_live_[action.fragment], {});
  }
  if (old.live_merger != nullptr) {
    for (const ContributionKey& key : old.live_merger->set().keys) {
      waiters_.Tell(key, &PushWaiter::OnRestart);
    }
    TestPoint("a set is given up");
    old = {};
  }
  if (set.keys.empty()) {
    // Nothing is wanted that could be hindered.
    MutexLock lock(&mutex_);
    blocked_reasons_.erase(ToCause(action));
    return;
  }
  MergedLive made;
  made.contributions = store_->contributions().Renew(set.keys, set.id);
  absl::Status status;
  if (made.contributions.size() != set.keys.size()) {
    status = absl::UnavailableError("a contribution is not bound any more");
  } else {
    absl::StatusOr<std::shared_ptr<LiveMerger>> live_merger =
        LiveMerger::Create(*store_, *optimizer_, *rule_, set);
    status = live_merger.status();
    if (live_merger.ok()) made.live_merger = *std::move(live_merger);
  }
  if (!status.ok()) {
    Ended(action, status);
    return;
  }
  resources_.held.AddSet(made.live_merger);
  {
    MutexLock lock(&mutex_);
    merged_live_[action.fragment] = std::move(made);
    blocked_reasons_.erase(ToCause(action));
  }
  for (const ContributionKey& key : set.keys) {
    waiters_.Tell(key, &PushWaiter::OnLiveMerge);
  }
  TestPoint("a set is told to be gathered");
}

absl::StatusOr<LivePlace> Shard::FindLiveMerge(
    const v1::ContributionInfo& info) const {
  const auto key = ContributionKey::FromProto(info.key());
  LivePlace found;
  MutexLock lock(&mutex_);
  if (machine_.decided(key) ||
      info.anchor_version() < machine_.version(key.fragment)) {
    return DroppedStatus(key);
  }
  const auto it = merged_live_.find(key.fragment);
  if (it == merged_live_.end() || it->second.live_merger == nullptr)
    return found;
  const std::vector<ContributionKey>& keys = it->second.live_merger->set().keys;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!(keys[i] == key)) continue;
    found.contribution = it->second.contributions[i];
    found.live_merger = it->second.live_merger;
    found.index = static_cast<int>(i);
  }
  return found;
}

bool Shard::IsDecided(const ContributionKey& key) const {
  MutexLock lock(&mutex_);
  return machine_.decided(key);
}

absl::StatusOr<PreparedFact> Shard::Prepare(const v1::Seal& seal) {
  if (!store_->merges_live()) {
    return resources_.merger.Merge(*store_, *optimizer_, *rule_, seal);
  }
  std::shared_ptr<LiveMerger> live_merger;
  {
    MutexLock lock(&mutex_);
    live_merger = merged_live_[seal.fragment()].live_merger;
  }
  if (live_merger == nullptr || !live_merger->set().Merges(seal)) {
    return absl::FailedPreconditionError("another set was gathered");
  }
  return live_merger->Publish(seal.attempt());
}

void Shard::RunPrepare(const Action& action) {
  const absl::Time begin = absl::Now();
  const absl::StatusOr<PreparedFact> prepared = Prepare(action.seal);
  absl::Status status = prepared.status();
  if (absl::IsDataLoss(status)) status = LoseDamaged(action.seal, status);
  if (status.ok()) {
    status = store_->versions().RecordPrepared(*prepared);
    if (!status.ok()) GiveUpPrepared(action.fragment, action.version + 1);
  }
  if (status.ok()) {
    LOG(INFO) << "run " << store_->run().run_id() << ": " << action.ToString()
              << " took " << absl::FormatDuration(absl::Now() - begin);
    MutexLock lock(&mutex_);
    machine_.OnPrepared(*prepared);
  }
  Ended(action, status);
}

void Shard::GiveUpPrepared(int32_t fragment, int64_t version) {
  const std::optional<HeldVersion> held =
      store_->versions().Find(fragment, version);
  store_->Unpublish(fragment, version);
  // What was gathered has it still, and may come to be prepared.
  if (held.has_value() && !store_->merges_live()) {
    store_->versions().GiveUp(fragment, version, held->file);
  }
}

absl::Status Shard::LoseDamaged(const v1::Seal& seal,
                                const absl::Status& damage) {
  {
    MutexLock lock(&mutex_);
    // Nobody has it any more: whatever can be repaired is to stay.
    if (machine_.IsCommitted(seal)) return damage;
  }
  const std::vector<ContributionKey> keys = store_->contributions().FindDamaged(seal);
  if (keys.empty()) return damage;
  RETURN_IF_ERROR(store_->contributions().Lose(keys));
  {
    MutexLock lock(&mutex_);
    for (const ContributionKey& key : keys) {
      // It may have come again meanwhile.
      const auto again = store_->contributions().Find(key);
      if (again != nullptr && again->state() == Contribution::State::kStored) {
        continue;
      }
      machine_.OnLost(key, damage.message());
    }
  }
  return absl::UnavailableError(
      absl::StrCat(keys.size(), " of its contributions are lost here (",
                   damage.message(), "), and are pushed again"));
}

void Shard::RunPersist(const Action& action) {
  const absl::Time begin = absl::Now();
  int64_t run_epoch;
  {
    MutexLock lock(&mutex_);
    run_epoch = machine_.run_epoch();
  }
  const absl::Status status =
      store_->Persist(run_epoch, action.commit, action.keys, action.keep);
  if (status.ok()) {
    LOG(INFO) << "run " << store_->run().run_id() << ": " << action.ToString()
              << " took " << absl::FormatDuration(absl::Now() - begin);
    {
      MutexLock lock(&mutex_);
      machine_.OnPersisted(action.commit.commit_seq());
    }
    for (const v1::ContributionOutcome& outcome : action.commit.outcomes()) {
      waiters_.Settle(ContributionKey::FromProto(outcome.key()),
                      DecidedStatus(outcome));
    }
    TestPoint("a commit is persisted");
  }
  Ended(action, status);
}

void Shard::RunDrop(const Action& action) {
  const absl::Status status = store_->contributions().Drop(action.keys);
  if (!status.ok()) OnQuietError(action, status);
  for (const ContributionKey& key : action.keys) {
    waiters_.Settle(key, DroppedStatus(key));
  }
  TestPoint("contributions are dropped");
  Changed();
}

void Shard::RunReserve(const Action& action) {
  const absl::Status status =
      store_->ReserveRound(action.fragment, action.version, action.count);
  if (!status.ok()) Ended(action, status);
}

void Shard::RunWriteManifest(const Action& action) {
  const absl::Time begin = absl::Now();
  int64_t run_epoch;
  {
    MutexLock lock(&mutex_);
    run_epoch = machine_.run_epoch();
  }
  const absl::Status status = store_->manifests().Write(run_epoch, action.pin);
  if (status.ok()) {
    LOG(INFO) << "run " << store_->run().run_id() << ": " << action.ToString()
              << " took " << absl::FormatDuration(absl::Now() - begin);
    MutexLock lock(&mutex_);
    machine_.OnManifestWritten(action.pin.pin_id());
  }
  Ended(action, status);
}

void Shard::RunDropManifest(const Action& action) {
  const absl::Status status = store_->manifests().Drop(action.pin.pin_id());
  // It names files that go now: the next start says so, and tries again.
  if (!status.ok()) OnQuietError(action, status);
  {
    MutexLock lock(&mutex_);
    machine_.OnManifestDropped(action.pin.pin_id());
  }
  Advance();
}

void Shard::RunDropKept(const Action& action) {
  const bool given_up = action.kind == ActionKind::kGiveUpKept;
  const absl::Status status =
      given_up ? store_->kept().GiveUp(action.commit_seqs, action.pins,
                                       action.reason)
               : store_->kept().Drop(action.commit_seqs, action.pins);
  if (given_up) {
    LOG(WARNING) << "run " << store_->run().run_id() << ": "
                 << action.ToString() << ": " << action.reason;
  }
  if (!status.ok()) OnQuietError(action, status);
  // An open file keeps its bytes on the disk, however slowly it is read.
  readers_.OnKeptDropped([&](const ContributionKey& key) {
    return store_->kept().Has(key) ? absl::OkStatus()
                                   : NotKept(key, action.reason);
  });
  Changed();
}

void Shard::GiveUpKept() {
  {
    MutexLock lock(&mutex_);
    machine_.OnNoRoom();
  }
  Advance();
}

// --- Handlers ---------------------------------------------------------------

}  // namespace atl::server
