#include "server/shard/shard.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/codec/block_grid.h"
#include "base/failpoint/failpoint.h"
#include "base/failpoint/test_point.h"
#include "base/layout/digest.h"
#include "base/layout/exchange.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/cut_utf8.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "server/core/checkpoint_keeper.h"

namespace atl::server {
namespace {

using Code = absl::StatusCode;

// Of what a report says that the shard cannot do now.
constexpr size_t kBlockedReasonBytesMax = 512;

ShardShape MakeShape(const RunStore& store) {
  ShardShape shape;
  shape.run_id = store.run().run_id();
  shape.shard = store.shard();
  shape.layout_fingerprint = store.layout().fingerprint();
  shape.import = store.run().spec().init().import();
  shape.max_staleness = store.run().spec().schedule().max_staleness();
  shape.judged = FindNeeds(store.run().spec().outer().merge()) !=
                 MergeNeeds::kNothing;
  shape.live_merge = store.merges_live();
  shape.codec = ToProto(UpCodec(store.run().spec()));
  for (int32_t f = 0; f < store.layout().fragment_count(); ++f) {
    const ShardRange& range = store.range(f);
    shape.fragments.push_back(
        {!range.empty(),
         range.block_count() == store.layout().fragment_block_count(f)});
  }
  return shape;
}

absl::Status DroppedStatus(const ContributionKey& key) {
  return Refuse(Code::kAborted, "ALREADY_DECIDED",
                absl::StrCat(key.ToString(), " is decided; fetch the plan"));
}

// What a COMMIT says of a contribution, to the streams that wait for it.
absl::Status DecidedStatus(const v1::ContributionOutcome& outcome) {
  return outcome.outcome() == v1::OUTCOME_MERGED
             ? absl::OkStatus()
             : DroppedStatus(ContributionKey::FromProto(outcome.key()));
}

// This shard's part of the fragment's digest, from the bytes that are stored.
absl::StatusOr<Digest128> ComputeDigest(const Contribution& contribution) {
  const ShardRange& range = contribution.range();
  Digest128 digest;
  std::vector<float> elements(codec::kBlockElements);
  for (int64_t b = range.blocks().begin; b < range.blocks().end; ++b) {
    const IndexRange block = {b, b + 1};
    RETURN_IF_ERROR(contribution.Read(block, elements.data()));
    digest += BlockDigest(
        b, absl::MakeConstSpan(elements.data(), range.ElementCount(block)));
  }
  return digest;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Shard>> Shard::Create(
    const ShardResources& resources, FileSystem& fs, RecordStore& records,
    const std::string& data_dir, const records::RunRecord& record) {
  ASSIGN_OR_RETURN(std::unique_ptr<OuterOptimizer> optimizer,
                   MakeOuterOptimizer(record.run().spec().outer()));
  ASSIGN_OR_RETURN(std::unique_ptr<RunStore> store,
                   RunStore::Open(fs, records, data_dir, record,
                                  optimizer->state_count(), resources.images));
  RETURN_IF_ERROR(LiveMerger::MakeAgain(*store, *optimizer));
  ShardShape shape = MakeShape(*store);
  std::unique_ptr<Shard> shard(new Shard(
      resources, std::move(store), std::move(optimizer), std::move(shape)));
  shard->DropImports();
  return shard;
}

Shard::Shard(const ShardResources& resources, std::unique_ptr<RunStore> store,
             std::unique_ptr<OuterOptimizer> optimizer, ShardShape shape)
    : resources_(resources),
      store_(std::move(store)),
      optimizer_(std::move(optimizer)),
      rule_(MakeMergeRule(store_->run().spec().outer())),
      machine_(std::move(shape), store_->Recovered()) {}

// --- Agent ------------------------------------------------------------------

void Shard::OnPlan(const v1::ServerRunPlan& plan) {
  {
    MutexLock lock(&mutex_);
    machine_.OnPlan(plan);
    ForgetBlockedReasons();
  }
  for (const int32_t slot : waiters_.Slots()) {
    const absl::Status member = CheckMember(slot);
    if (!member.ok()) waiters_.SettleSlot(slot, member);
  }
  Advance();
  Changed();
}

void Shard::OnUnplanned() {
  {
    MutexLock lock(&mutex_);
    if (!machine_.OnUnplanned()) return;
  }
  Advance();
}

void Shard::Tick() {
  {
    MutexLock lock(&mutex_);
    if (!retry_) return;
    retry_ = false;
  }
  Advance();
}

v1::ShardReport Shard::Report() const {
  v1::ShardReport report;
  {
    MutexLock lock(&mutex_);
    report = machine_.Report();
    if (!blocked_reasons_.empty()) {
      report.set_blocked_reason(blocked_reasons_.begin()->second);
    }
  }
  report.set_received_bytes(received_bytes_);
  report.set_sent_bytes(sent_bytes_);
  return report;
}

bool Shard::has_stopped() const {
  MutexLock lock(&mutex_);
  return !machine_.fault().empty();
}

void Shard::Changed() { resources_.on_change(); }

// --- Actions ----------------------------------------------------------------

void Shard::Advance() {
  std::vector<std::pair<ContributionKey, absl::Status>> to_settle;
  std::vector<MergedLive> done;
  {
    MutexLock lock(&mutex_);
    AdvanceLocked();
    to_settle.swap(to_settle_);
    done.swap(live_done_);
  }
  if (!to_settle.empty()) TestPoint("commits are applied");
  for (const auto& [key, status] : to_settle) waiters_.Settle(key, status);
}

void Shard::AdvanceLocked() {
  const bool was_stopped = !machine_.fault().empty();
  for (Action& action : machine_.NextActions()) Post(std::move(action));
  if (!was_stopped && !machine_.fault().empty()) {
    LOG(ERROR) << "run " << store_->run().run_id() << " shard "
               << store_->shard() << " stops: " << machine_.fault();
  }
  if (machine_.waiting_reason() != logged_wait_) {
    logged_wait_ = machine_.waiting_reason();
    if (!logged_wait_.empty()) {
      LOG(INFO) << "run " << store_->run().run_id() << ": " << logged_wait_;
    }
  }
}

void Shard::Post(Action action) {
  switch (action.kind) {
    case ActionKind::kMakeVersion0:
      resources_.merge_queue.Post([this, action] { RunMakeVersion0(action); });
      return;
    case ActionKind::kMeasure:
      resources_.merge_queue.Post([this, action] { RunMeasure(action); });
      return;
    case ActionKind::kLiveMerge:
      resources_.merge_queue.Post([this, action] { RunLiveMerge(action); });
      return;
    case ActionKind::kPrepare:
      resources_.merge_queue.Post([this, action] { RunPrepare(action); });
      return;
    case ActionKind::kReserve:
      resources_.disk_queue.Post([this, action] { RunReserve(action); });
      return;
    case ActionKind::kDiscard:
      // At once, so that it cannot meet the next attempt's file.
      store_->DiscardVersion(action.fragment, action.version);
      return;
    case ActionKind::kApply:
      failpoint::Hit("server.commit.before");
      store_->CommitVersion(action.fragment, action.version,
                            action.commit.commit_seq());
      failpoint::Hit("server.commit.after");
      if (!store_->merges_live()) return;
      // Now, and not before, they may be let go.
      live_done_.push_back(std::exchange(merged_live_[action.fragment], {}));
      for (const v1::ContributionOutcome& outcome : action.commit.outcomes()) {
        to_settle_.push_back({ContributionKey::FromProto(outcome.key()),
                              DecidedStatus(outcome)});
      }
      return;
    case ActionKind::kPersist:
      resources_.disk_queue.Post([this, action] { RunPersist(action); });
      return;
    case ActionKind::kDrop:
      resources_.disk_queue.Post([this, action] { RunDrop(action); });
      return;
    case ActionKind::kWriteManifest:
      resources_.low_queue.Post([this, action] { RunWriteManifest(action); });
      return;
    case ActionKind::kDropManifest:
      resources_.disk_queue.Post([this, action] { RunDropManifest(action); });
      return;
    case ActionKind::kDropKept:
    case ActionKind::kGiveUpKept:
      resources_.disk_queue.Post([this, action] { RunDropKept(action); });
      return;
    case ActionKind::kDropSpares:
      resources_.disk_queue.Post([this] { store_->DropSpares(); });
      return;
    case ActionKind::kRelease:
      resources_.disk_queue.Post([this, action] {
        {
          MutexLock lock(&mutex_);
          blocked_reasons_.erase(
              {kReadBlockedReason, action.fragment, action.version});
        }
        store_->RemoveVersion(action.fragment, action.version);
        readers_.OnReleased(action.fragment, action.version);
      });
      return;
  }
}

Shard::Cause Shard::ToCause(const Action& action) {
  return {static_cast<int>(action.kind), action.fragment, 0,
          action.pin.pin_id()};
}

void Shard::ForgetBlockedReasons() {
  const v1::ServerRunPlan& plan = machine_.plan();
  const bool has_ended = plan.run_state() == v1::RUN_STATE_COMPLETED ||
                         plan.run_state() == v1::RUN_STATE_CANCELLED;
  const auto has_pin = [&](const std::string& pin_id) {
    return std::any_of(
        plan.pins().begin(), plan.pins().end(),
        [&](const v1::Pin& pin) { return pin.pin_id() == pin_id; });
  };
  const auto merges = [&](int32_t fragment) {
    return std::any_of(
        plan.seals().begin(), plan.seals().end(),
        [&](const v1::Seal& seal) { return seal.fragment() == fragment; });
  };
  const auto takes = [&](int32_t fragment) {
    return merges(fragment) ||
           std::any_of(plan.open_rounds().begin(), plan.open_rounds().end(),
                       [&](const v1::OpenRound& open) {
                         return open.fragment() == fragment;
                       });
  };
  std::erase_if(blocked_reasons_, [&](const auto& entry) {
    const Cause& cause = entry.first;
    if (cause.kind == static_cast<int>(ActionKind::kPrepare) ||
        cause.kind == static_cast<int>(ActionKind::kMeasure)) {
      return !merges(cause.fragment);
    }
    // Imports come before there is any round.
    if (cause.kind == kLogBlockedReason &&
        plan.run_state() == v1::RUN_STATE_ACTIVE && !takes(cause.fragment)) {
      return true;
    }
    // What it still does once it has ended is done for a COMMIT or a pin.
    return (!cause.pin_id.empty() && !has_pin(cause.pin_id)) ||
           (has_ended && cause.pin_id.empty() &&
            cause.kind != static_cast<int>(ActionKind::kPersist) &&
            cause.kind != kReadBlockedReason);
  });
}

void Shard::NoteBlockedReason(const Cause& cause, absl::string_view name,
                          const absl::Status& status) {
  const std::string why(
      CutUtf8(absl::StrCat(name, " failed: ", status.message()),
              kBlockedReasonBytesMax));
  std::string& blocked_reason = blocked_reasons_[cause];
  // It may fail in the same way for hours.
  if (blocked_reason != why) {
    LOG(WARNING) << "run " << store_->run().run_id() << " shard "
                 << store_->shard() << ", tried again until it can: " << why;
  }
  blocked_reason = why;
  // The plan may have come while it was tried.
  ForgetBlockedReasons();
}

void Shard::Ended(const Action& action, const absl::Status& status) {
  if (!status.ok()) {
    if (absl::IsResourceExhausted(status)) no_room_ = true;
    MutexLock lock(&mutex_);
    if (action.kind == ActionKind::kReserve) {
      // No hindrance: what has no room later says so then. It may fail in the
      // same way for hours.
      std::string why =
          absl::StrCat(action.ToString(), " failed: ", status.message());
      std::string& logged = logged_reserves_[action.fragment];
      if (why != logged) {
        LOG(WARNING) << "run " << store_->run().run_id() << " shard "
                     << store_->shard() << ": " << why;
        logged = std::move(why);
      }
    } else if (action.kind == ActionKind::kWriteManifest &&
               !CheckpointKeeper::MayPass(status)) {
      // The checkpoint's fault tells of it.
      blocked_reasons_.erase(ToCause(action));
      LOG(ERROR) << "run " << store_->run().run_id() << " shard "
                 << store_->shard() << ", given up: " << action.ToString()
                 << " failed: " << status.message();
    } else {
      NoteBlockedReason(ToCause(action), action.ToString(), status);
    }
    machine_.OnFailed(action, status);
    // Not at once: what lacked room a moment ago lacks it now.
    retry_ = true;
  } else {
    {
      MutexLock lock(&mutex_);
      blocked_reasons_.erase(ToCause(action));
      if (action.kind == ActionKind::kPrepare) {
        // What comes before it has been done, or was not needed.
        for (const ActionKind kind :
             {ActionKind::kMeasure, ActionKind::kLiveMerge}) {
          blocked_reasons_.erase({static_cast<int>(kind), action.fragment});
        }
      }
    }
    Advance();
  }
  Changed();
}

absl::Status Shard::OnLogError(const v1::ContributionInfo& info,
                               const absl::Status& error) {
  // It was freed meanwhile: no error of the disk.
  if (absl::IsAborted(error)) return error;
  const auto key = ContributionKey::FromProto(info.key());
  absl::Status told = error;
  {
    MutexLock lock(&mutex_);
    if (absl::IsDataLoss(error)) {
      machine_.OnFault(absl::StrCat("cannot take ", key.ToString(), ": ",
                                    error.ToString()));
      told = machine_.CheckServes();
    } else {
      // Not whose: many may try for hours.
      NoteBlockedReason(
          {kLogBlockedReason, key.fragment},
          absl::StrCat("take contributions to fragment ", key.fragment), error);
      if (absl::IsResourceExhausted(error)) {
        no_room_ = true;
      } else {
        // Whatever its code says to a caller of the disk, an island can do
        // nothing about it.
        told = Refuse(Code::kUnavailable, "DISK_FAILS",
                      absl::StrCat("the server's disk: ", error.message(),
                                   "; its operator has to look at it"));
      }
    }
  }
  Advance();
  Changed();
  return told;
}

void Shard::OnQuietError(const Action& action, const absl::Status& error) {
  LOG(WARNING) << "run " << store_->run().run_id() << ": " << action.ToString()
               << " failed: " << error.ToString();
  if (!absl::IsDataLoss(error)) return;
  {
    MutexLock lock(&mutex_);
    machine_.OnFault(error.ToString());
  }
  Advance();
}

void Shard::RunMakeVersion0(const Action& action) {
  const absl::StatusOr<Digest128> digest =
      resources_.merger.MakeVersion0(*store_, *optimizer_, action.fragment);
  absl::Status status = digest.status();
  if (status.ok()) status = store_->PersistVersion0(action.fragment);
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
      if (machine_.version(f) >= 0 && store_->Find(key) != nullptr) {
        keys.push_back(key);
      }
    }
  }
  if (keys.empty()) return;
  const absl::Status dropped = store_->Drop(keys);
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
  made.contributions = store_->Renew(set.keys, set.id);
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

absl::StatusOr<Shard::LiveMerge> Shard::FindLiveMerge(
    const v1::ContributionInfo& info) const {
  const auto key = ContributionKey::FromProto(info.key());
  LiveMerge found;
  MutexLock lock(&mutex_);
  if (machine_.decided(key) ||
      info.anchor_version() < machine_.version(key.fragment)) {
    return DroppedStatus(key);
  }
  const auto it = merged_live_.find(key.fragment);
  if (it == merged_live_.end() || it->second.live_merger == nullptr) return found;
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
    status = store_->RecordPrepared(*prepared);
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
      store_->FindVersion(fragment, version);
  store_->Unpublish(fragment, version);
  // What was gathered has it still, and may come to be prepared.
  if (held.has_value() && !store_->merges_live()) {
    store_->GiveUp(fragment, version, held->file, nullptr);
  }
}

absl::Status Shard::LoseDamaged(const v1::Seal& seal,
                                const absl::Status& damage) {
  {
    MutexLock lock(&mutex_);
    // Nobody has it any more: whatever can be repaired is to stay.
    if (machine_.IsCommitted(seal)) return damage;
  }
  const std::vector<ContributionKey> keys = store_->FindDamaged(seal);
  if (keys.empty()) return damage;
  RETURN_IF_ERROR(store_->Lose(keys));
  {
    MutexLock lock(&mutex_);
    for (const ContributionKey& key : keys) {
      // It may have come again meanwhile.
      const auto again = store_->Find(key);
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
  const absl::Status status = store_->Drop(action.keys);
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
  const absl::Status status = store_->WriteManifest(run_epoch, action.pin);
  if (status.ok()) {
    LOG(INFO) << "run " << store_->run().run_id() << ": " << action.ToString()
              << " took " << absl::FormatDuration(absl::Now() - begin);
    MutexLock lock(&mutex_);
    machine_.OnManifestWritten(action.pin.pin_id());
  }
  Ended(action, status);
}

void Shard::RunDropManifest(const Action& action) {
  const absl::Status status = store_->DropManifest(action.pin.pin_id());
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
      given_up ? store_->GiveUpKept(action.commit_seqs, action.pins,
                                    action.reason)
               : store_->DropKept(action.commit_seqs, action.pins);
  if (given_up) {
    LOG(WARNING) << "run " << store_->run().run_id() << ": "
                 << action.ToString() << ": " << action.reason;
  }
  if (!status.ok()) OnQuietError(action, status);
  // An open file keeps its bytes on the disk, however slowly it is read.
  readers_.OnKeptDropped([&](const ContributionKey& key) {
    return store_->HasKept(key) ? absl::OkStatus()
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

absl::StatusOr<std::shared_ptr<Contribution>> Shard::OpenPush(
    const v1::PushHeader& header, absl::string_view session_sha256) {
  {
    MutexLock lock(&mutex_);
    RETURN_IF_ERROR(machine_.AdmitPush(header, session_sha256));
  }
  absl::StatusOr<std::shared_ptr<Contribution>> bound =
      store_->Bind(header.info());
  if (!bound.ok()) return OnLogError(header.info(), bound.status());
  const std::shared_ptr<Contribution> contribution = *std::move(bound);
  // Another stream may have bound the key meanwhile.
  if (contribution->info().SerializeAsString() !=
      header.info().SerializeAsString()) {
    return Refuse(Code::kAborted, "KEY_IS_BOUND",
                  absl::StrCat(contribution->key().ToString(),
                               " is bound to another header; push what the "
                               "first one said, or take the next seq"));
  }
  if (contribution->state() == Contribution::State::kPartial) {
    MutexLock lock(&mutex_);
    machine_.OnBound(header.info());
  }
  // It may have been the last that a set waits for.
  if (store_->merges_live()) Advance();
  return contribution;
}

absl::Status Shard::CheckMember(int32_t slot) const {
  MutexLock lock(&mutex_);
  return machine_.CheckMember(slot);
}

absl::StatusOr<std::shared_ptr<Contribution>> Shard::OpenImport(
    const v1::ImportHeader& header) {
  v1::ContributionInfo info;
  *info.mutable_key() = ContributionKey::OfImport(header.fragment()).ToProto();
  info.set_anchor_version(-1);
  *info.mutable_digest() = header.digest();
  info.set_codec(v1::CODEC_F32);
  std::shared_ptr<Contribution> contribution;
  // Twice: it may become version 0 between question and binding.
  for (const bool bound : {false, true}) {
    {
      MutexLock lock(&mutex_);
      ASSIGN_OR_RETURN(const bool done, machine_.AdmitImport(header));
      if (done) break;
    }
    if (bound) return contribution;
    absl::StatusOr<std::shared_ptr<Contribution>> made = store_->Bind(info);
    if (!made.ok()) return OnLogError(info, made.status());
    contribution = *std::move(made);
    if (contribution->info().SerializeAsString() != info.SerializeAsString()) {
      return Refuse(
          Code::kAlreadyExists, "OTHER_MODEL",
          absl::StrCat(
              "another model is being imported into fragment ",
              header.fragment(), " (digest ",
              Digest128::FromProto(contribution->info().digest()).ToHex(),
              "); create another run for this one"));
    }
  }
  DropImports();
  return nullptr;
}

absl::StatusOr<bool> Shard::WriteBlocks(
    Contribution& contribution, IndexRange blocks,
    absl::Span<const absl::string_view> pieces,
    absl::Span<const BlockFact> facts) {
  absl::StatusOr<bool> last =
      store_->WriteBlocks(contribution, blocks, pieces, facts);
  if (!last.ok()) return OnLogError(contribution.info(), last.status());
  return last;
}

void Shard::FinishLater(std::shared_ptr<Contribution> contribution) {
  resources_.finish_queue.Post([this, contribution = std::move(contribution)] {
    RunFinish(contribution);
  });
}

void Shard::RunFinish(const std::shared_ptr<Contribution>& contribution) {
  const ContributionKey& key = contribution->key();
  const absl::Status whole = CheckWhole(*contribution);
  if (absl::IsInvalidArgument(whole)) {
    RefuseWhole(*contribution, whole);
    return;
  }
  absl::StatusOr<double> norm_squared = 0.0;
  if (whole.ok()) {
    norm_squared = store_->Finish(*contribution);
  } else {
    norm_squared = whole;
    contribution->Reopen();
  }
  if (!norm_squared.ok()) {
    LOG(WARNING) << "run " << store_->run().run_id() << ": cannot store "
                 << key.ToString() << ": " << norm_squared.status().ToString();
    waiters_.Settle(key,
                    OnLogError(contribution->info(), norm_squared.status()));
    return;
  }
  TestPoint("a contribution is stored");
  absl::Status status;
  {
    MutexLock lock(&mutex_);
    if (key.is_import()) {
      machine_.OnImported(key.fragment);
    } else if (machine_.Knows(key) && store_->Find(key) == contribution) {
      machine_.OnStored(contribution->info(), *norm_squared,
                        contribution->live_set_id());
    } else {
      // It was dropped, or is about to be, and nobody would do so again.
      status = DroppedStatus(key);
    }
    blocked_reasons_.erase({kLogBlockedReason, key.fragment});
  }
  Advance();
  Changed();
  // At level ISLAND the COMMIT settles it.
  if (!contribution->is_merged_live()) waiters_.Settle(key, status);
}

absl::Status Shard::CheckWhole(const Contribution& contribution) const {
  if (contribution.key().is_import()) {
    ASSIGN_OR_RETURN(const Digest128 digest, ComputeDigest(contribution));
    if (digest == Digest128::FromProto(contribution.info().digest())) {
      return absl::OkStatus();
    }
    return Refuse(Code::kInvalidArgument, "WRONG_DIGEST",
                  absl::StrCat("its blocks have digest ", digest.ToHex(),
                               ", which is not the header's"));
  }
  const double norm_max = store_->run().spec().outer().contribution_norm_max();
  const double norm = std::sqrt(contribution.NormSquared());
  if (norm_max > 0 && !(norm <= norm_max)) {
    return Refuse(
        Code::kInvalidArgument, "NORM_TOO_LARGE",
        absl::StrCat("its norm over shard ", store_->shard(), " is ", norm,
                     ", and outer.contribution_norm_max is ", norm_max));
  }
  return absl::OkStatus();
}

void Shard::RefuseWhole(const Contribution& contribution,
                        const absl::Status& reason) {
  const ContributionKey& key = contribution.key();
  const ContributionKey keys[] = {key};
  const std::string text(CutUtf8(reason.message(), kRefusalBytesMax));
  const absl::Status refused =
      key.is_import() ? store_->Drop(keys)
                      : store_->Refuse(contribution.info(), text);
  if (!refused.ok()) {
    // Nobody may hear of what a start would not know.
    waiters_.Settle(key, OnLogError(contribution.info(),
                                    Annotate(refused,
                                             "cannot record that it is "
                                             "refused")));
    return;
  }
  if (!key.is_import()) {
    MutexLock lock(&mutex_);
    machine_.OnRefused(contribution.info(), text);
  }
  Changed();
  waiters_.Settle(key, Annotate(reason, absl::StrCat(key.ToString(),
                                                     " is refused")));
}

}  // namespace atl::server
