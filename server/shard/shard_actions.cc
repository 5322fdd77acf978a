// The machine's actions. Each runs on a queue of ShardResources.

#include "server/shard/shard.h"

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/failpoint/failpoint.h"
#include "base/failpoint/test_point.h"
#include "base/layout/digest.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "server/shard/decided_status.h"

namespace atl::server {

void Shard::RunMakeVersion0(const ShardAction& action) {
  const absl::StatusOr<Version0Fact> fact =
      resources_.merger.MakeVersion0(*store_, *optimizer_, action.fragment);
  absl::Status status = fact.status();
  if (status.ok()) {
    status = store_->versions().PersistVersion0(action.fragment,
                                                fact->norm_squared);
  }
  if (status.ok()) {
    {
      MutexLock lock(&mutex_);
      machine_.OnVersion0(action.fragment, *fact);
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
      if (machine_.version(f) >= 0 &&
          store_->contributions().Find(key) != nullptr) {
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

void Shard::RunMeasure(const ShardAction& action) {
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

void Shard::RunLiveMerge(const ShardAction& action) {
  const absl::Status status = live_->Start(action.fragment, action.live_merge);
  if (!status.ok()) {
    Ended(action, status);
    return;
  }
  MutexLock lock(&mutex_);
  blocked_reasons_.Erase(BlockedReasons::ToCause(action));
}

absl::StatusOr<LivePlace> Shard::FindLiveMerge(
    const v1::ContributionInfo& info) const {
  const auto key = ContributionKey::FromProto(info.key());
  MutexLock lock(&mutex_);
  if (machine_.decided(key) ||
      info.anchor_version() < machine_.version(key.fragment)) {
    return DroppedStatus(key);
  }
  return live_->Find(key);
}

bool Shard::IsDecided(const ContributionKey& key) const {
  MutexLock lock(&mutex_);
  return machine_.decided(key);
}

void Shard::RunPrepare(const ShardAction& action) {
  const absl::Time begin = absl::Now();
  const absl::StatusOr<PreparedFact> prepared =
      live_ != nullptr
          ? live_->Prepare(action.seal)
          : resources_.merger.Merge(*store_, *optimizer_, *rule_, action.seal);
  absl::Status status = prepared.status();
  if (absl::IsDataLoss(status)) status = LoseDamaged(action.seal, status);
  if (status.ok()) {
    status = store_->versions().RecordPrepared(*prepared);
    if (!status.ok()) GiveUpPrepared(action.fragment, action.version + 1);
  }
  if (status.ok()) {
    const absl::Duration took = absl::Now() - begin;
    resources_.metrics.ObserveMerge(took);
    LOG(INFO) << "run " << store_->run().run_id() << ": " << action.ToString()
              << " took " << absl::FormatDuration(took);
    MutexLock lock(&mutex_);
    machine_.OnPrepared(*prepared);
  }
  Ended(action, status);
}

void Shard::GiveUpPrepared(int32_t fragment, int64_t version) {
  const std::optional<HeldVersion> held =
      store_->versions().Find(fragment, version);
  store_->Unpublish(fragment, version);
  // A live merge still has the file, and may be prepared later.
  if (held.has_value() && live_ == nullptr) {
    store_->versions().GiveUp(fragment, version, held->file);
  }
}

absl::Status Shard::LoseDamaged(const v1::Seal& seal,
                                const absl::Status& damage) {
  {
    MutexLock lock(&mutex_);
    // No island has the bytes any longer: an operator may repair the file.
    if (machine_.IsCommitted(seal)) return damage;
  }
  const std::vector<ContributionKey> keys =
      store_->contributions().FindDamaged(seal);
  if (keys.empty()) return damage;
  RETURN_IF_ERROR(store_->contributions().Lose(keys));
  {
    MutexLock lock(&mutex_);
    for (const ContributionKey& key : keys) {
      // An island may have pushed it again.
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

void Shard::RunPersist(const ShardAction& action) {
  const absl::Time begin = absl::Now();
  int64_t run_epoch;
  {
    MutexLock lock(&mutex_);
    run_epoch = machine_.run_epoch();
  }
  const absl::Status status =
      store_->Persist(run_epoch, action.commit, action.keys, action.keep,
                      resources_.log_seen());
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

void Shard::RunDrop(const ShardAction& action) {
  const absl::Status status = store_->contributions().Drop(action.keys);
  if (!status.ok()) OnQuietError(action, status);
  for (const ContributionKey& key : action.keys) {
    waiters_.Settle(key, DroppedStatus(key));
  }
  TestPoint("contributions are dropped");
  Changed();
}

void Shard::RunReserve(const ShardAction& action) {
  const absl::Status status =
      store_->ReserveRound(action.fragment, action.version, action.count);
  if (!status.ok()) Ended(action, status);
}

void Shard::RunRelease(const ShardAction& action) {
  {
    MutexLock lock(&mutex_);
    blocked_reasons_.Erase({BlockedReasons::Cause::kReadVersion,
                            action.fragment, action.version, ""});
  }
  store_->versions().Remove(action.fragment, action.version);
  readers_.OnReleased(action.fragment, action.version);
}

void Shard::RunDropSpares(const ShardAction& action) { store_->DropSpares(); }

void Shard::RunWriteManifest(const ShardAction& action) {
  const absl::Time begin = absl::Now();
  int64_t run_epoch;
  {
    MutexLock lock(&mutex_);
    run_epoch = machine_.run_epoch();
  }
  // First, because an older copy of the coordinator would have the manifest
  // deleted: it does not know the pin.
  absl::Status status = resources_.persist_log();
  if (status.ok()) status = store_->manifests().Write(run_epoch, action.pin);
  if (status.ok()) {
    LOG(INFO) << "run " << store_->run().run_id() << ": " << action.ToString()
              << " took " << absl::FormatDuration(absl::Now() - begin);
    MutexLock lock(&mutex_);
    machine_.OnManifestWritten(action.pin.pin_id());
  }
  Ended(action, status);
}

void Shard::RunDropManifest(const ShardAction& action) {
  const absl::Status kept = resources_.persist_log();
  if (!kept.ok()) return Ended(action, kept);
  const absl::Status status = store_->manifests().Drop(action.pin.pin_id());
  // The manifest names files that are deleted now. The next start reports that
  // and tries again.
  if (!status.ok()) OnQuietError(action, status);
  {
    MutexLock lock(&mutex_);
    machine_.OnManifestDropped(action.pin.pin_id());
  }
  Advance();
}

void Shard::RunDropKept(const ShardAction& action) {
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
  // An open file keeps its bytes on the disk until its reader closes it.
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

}  // namespace atl::server
