#include "server/shard/shard.h"

#include "absl/strings/str_cat.h"
#include "base/failpoint/failpoint.h"
#include "base/failpoint/test_point.h"
#include "base/layout/digest.h"
#include "base/layout/exchange.h"
#include "base/obs/log.h"
#include "base/obs/version.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "server/core/checkpoint_keeper.h"
#include "server/core/faults.h"
#include "server/core/known_spec.h"
#include "server/mirror/checkpoint_download.h"
#include "server/shard/decided_status.h"

namespace atl::server {
namespace {

using Code = absl::StatusCode;

ShardShape MakeShape(const RunStore& store) {
  ShardShape shape;
  shape.run_id = store.run().run_id();
  shape.run_uid = store.run().run_uid();
  shape.shard = store.shard();
  shape.layout_fingerprint = store.layout().fingerprint();
  shape.import = store.run().spec().init().import();
  shape.max_staleness = store.run().spec().schedule().max_staleness();
  shape.judged =
      FindNeeds(store.run().spec().outer().merge()) != MergeNeeds::kNothing;
  shape.live_merge = store.merges_live();
  shape.mirror = store.run().spec().checkpoint().mirror();
  shape.codec = ToProto(UpCodec(store.run().spec()));
  for (int32_t f = 0; f < store.layout().fragment_count(); ++f) {
    const ShardRange& range = store.range(f);
    shape.fragments.push_back(
        {!range.empty(),
         range.block_count() == store.layout().fragment_block_count(f)});
  }
  return shape;
}

}  // namespace

absl::Status ShardNotHere(absl::string_view run_id) {
  return Refuse(Code::kNotFound, "SHARD_NOT_HERE",
                absl::StrCat("this server holds no shard of run \"", run_id,
                             "\"; fetch the plan"));
}

absl::StatusOr<std::shared_ptr<Shard>> Shard::Create(
    const ShardResources& resources, FileSystem& fs, RecordStore& records,
    const std::string& data_dir, const records::RunRecord& record,
    const absl::Status& fault, int64_t failed_run_epoch) {
  RETURN_IF_ERROR(CheckKnownSpec(record.run().spec(), kProgramVersion));
  ASSIGN_OR_RETURN(std::unique_ptr<OuterOptimizer> optimizer,
                   MakeOuterOptimizer(record.run().spec().outer()));
  ASSIGN_OR_RETURN(std::unique_ptr<MergeRule> rule,
                   MakeMergeRule(record.run().spec().outer()));
  absl::Status damage = records.damage();
  damage.Update(fault);
  std::unique_ptr<RunStore> store;
  if (damage.ok()) {
    absl::StatusOr<std::unique_ptr<RunStore>> opened =
        RunStore::Open(fs, records, data_dir, record, optimizer->state_count(),
                       resources.images);
    damage = opened.status();
    if (opened.ok()) {
      store = *std::move(opened);
      damage = LiveMerger::MakeAgain(*store, *optimizer);
    }
    if (!damage.ok() && !absl::IsDataLoss(damage)) return damage;
  }
  if (!damage.ok()) {
    absl::StatusOr<std::unique_ptr<RunStore>> stopped = RunStore::OpenStopped(
        fs, records, data_dir, record, optimizer->state_count());
    if (!stopped.ok()) return damage;
    store = *std::move(stopped);
  }
  ShardShape shape = MakeShape(*store);
  RecoveredShard recovered = store->Recovered();
  recovered.failed_run_epoch = failed_run_epoch;
  std::shared_ptr<Shard> shard(new Shard(
      resources, std::move(store), std::move(optimizer), std::move(rule),
      std::move(shape), std::move(recovered)));
  if (damage.ok()) {
    shard->DropImports();
  } else {
    MutexLock lock(&shard->mutex_);
    shard->machine_.OnFault(ToFault(damage));
  }
  return shard;
}

absl::Status Shard::Rollback(FileSystem& fs, RecordStore& records,
                             const std::string& data_dir,
                             const records::RunRecord& record,
                             const v1::ServerRunPlan& plan,
                             const v1::LogPosition& log) {
  ASSIGN_OR_RETURN(const std::unique_ptr<OuterOptimizer> optimizer,
                   MakeOuterOptimizer(record.run().spec().outer()));
  return RunStore::Rollback(fs, records, data_dir, record,
                            optimizer->state_count(), plan.run_epoch(),
                            plan.restored(), log);
}

absl::Status Shard::Download(ObjectStore& mirror, FileSystem& fs,
                             RecordStore& records, const std::string& data_dir,
                             const records::RunRecord& record,
                             const v1::ServerRunPlan& plan,
                             std::function<bool()> is_cancelled) {
  ASSIGN_OR_RETURN(const std::unique_ptr<OuterOptimizer> optimizer,
                   MakeOuterOptimizer(record.run().spec().outer()));
  return DownloadVersions(
      mirror, {fs, records, data_dir, record, optimizer->state_count(),
               plan.restored(), std::move(is_cancelled)});
}

Shard::Shard(const ShardResources& resources, std::unique_ptr<RunStore> store,
             std::unique_ptr<OuterOptimizer> optimizer,
             std::unique_ptr<MergeRule> rule, ShardShape shape,
             RecoveredShard recovered)
    : resources_(resources),
      store_(std::move(store)),
      optimizer_(std::move(optimizer)),
      rule_(std::move(rule)),
      live_(store_->merges_live()
                ? std::make_unique<LiveRounds>(*store_, *optimizer_, *rule_,
                                               waiters_, resources_.held)
                : nullptr),
      machine_(std::move(shape), std::move(recovered)) {}

// --- Agent ------------------------------------------------------------------

bool Shard::NeedsRestore(const v1::ServerRunPlan& plan) const {
  MutexLock lock(&mutex_);
  return machine_.NeedsRestore(plan);
}

void Shard::OnPlan(const v1::ServerRunPlan& plan) {
  {
    MutexLock lock(&mutex_);
    machine_.OnPlan(plan);
    blocked_reasons_.Forget(machine_.plan());
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

v1::ShardReport Shard::Report(int64_t report_seq, bool takes_changes) {
  v1::ShardReport report;
  {
    MutexLock lock(&mutex_);
    report = machine_.Report(report_seq, takes_changes);
    const std::string blocked = blocked_reasons_.First();
    if (!blocked.empty()) report.set_blocked_reason(blocked);
  }
  report.set_received_bytes(received_bytes_);
  report.set_sent_bytes(sent_bytes_);
  return report;
}

void Shard::ReportWhole() {
  MutexLock lock(&mutex_);
  machine_.ReportWhole();
}

bool Shard::has_stopped() const {
  MutexLock lock(&mutex_);
  return machine_.has_stopped();
}

bool Shard::is_blocked() const {
  MutexLock lock(&mutex_);
  return !blocked_reasons_.First().empty();
}

std::string Shard::run_uid() const {
  MutexLock lock(&mutex_);
  return machine_.run_uid();
}

void Shard::Close(const absl::Status& why) {
  {
    MutexLock lock(&mutex_);
    closed_ = why;
  }
  // A stream that is listed later asks CheckOpen.
  waiters_.SettleAll(why);
  readers_.EndAll(why);
}

bool Shard::EndUses() {
  const bool is_mirror_done =
      resources_.mirror == nullptr ||
      resources_.mirror->Drop(run_uid(), store_->shard());
  return (live_ == nullptr || live_->EndAll()) && is_mirror_done;
}

absl::Status Shard::CheckOpen() const {
  MutexLock lock(&mutex_);
  return closed_;
}

void Shard::Changed() { resources_.on_change(); }

// --- Actions ----------------------------------------------------------------

void Shard::Advance() {
  std::vector<std::pair<ContributionKey, absl::Status>> to_settle;
  std::vector<std::shared_ptr<const void>> done;
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
  if (!closed_.ok()) return;
  for (ShardAction& action : machine_.NextActions()) Post(std::move(action));
  if (std::optional<v1::Pin> pin = machine_.NextMirror(); pin.has_value()) {
    // One thread: a newer checkpoint never gets to the mirror before an older
    // one, which would replace it there.
    resources_.low_queue.Post([self = shared_from_this(), pin = *pin] {
      if (self->CheckOpen().ok()) self->RunMirror(pin);
    });
  }
  if (const std::string fault = machine_.fault(); fault != logged_fault_) {
    if (fault.empty()) {
      LOG(INFO) << "run " << store_->run().run_id() << " shard "
                << store_->shard() << " continues: the plan fits again";
    } else {
      LOG(ERROR) << "run " << store_->run().run_id() << " shard "
                 << store_->shard() << " stops: " << fault;
    }
    logged_fault_ = fault;
  }
  if (machine_.waiting_reason() != logged_wait_) {
    logged_wait_ = machine_.waiting_reason();
    if (!logged_wait_.empty()) {
      LOG(INFO) << "run " << store_->run().run_id() << ": " << logged_wait_;
    }
  }
}

void Shard::Post(ShardAction action) {
  // Runs the action on the queue, unless the shard is closed by then.
  using Run = void (Shard::*)(const ShardAction&);
  const auto post_to = [&](WorkQueue& queue, Run run) {
    queue.Post([self = shared_from_this(), run, action = std::move(action)] {
      if (self->CheckOpen().ok()) (*self.*run)(action);
    });
  };
  switch (action.kind) {
    case ActionKind::kMakeVersion0:
      return post_to(resources_.merge_queue, &Shard::RunMakeVersion0);
    case ActionKind::kMeasure:
      return post_to(resources_.merge_queue, &Shard::RunMeasure);
    case ActionKind::kLiveMerge:
      return post_to(resources_.merge_queue, &Shard::RunLiveMerge);
    case ActionKind::kPrepare:
      return post_to(resources_.merge_queue, &Shard::RunPrepare);
    case ActionKind::kReserve:
      return post_to(resources_.disk_queue, &Shard::RunReserve);
    case ActionKind::kDiscard:
      // Not on a queue: it must come before the next attempt makes its file.
      store_->DiscardVersion(action.fragment, action.version);
      return;
    case ActionKind::kApply:
      failpoint::Hit("server.commit.before");
      store_->versions().Commit(action.fragment, action.version,
                                action.commit.commit_seq());
      failpoint::Hit("server.commit.after");
      if (live_ == nullptr) return;
      // From here on the round's streams may hear its outcome.
      live_done_.push_back(live_->End(action.fragment));
      for (const v1::ContributionOutcome& outcome : action.commit.outcomes()) {
        to_settle_.push_back({ContributionKey::FromProto(outcome.key()),
                              DecidedStatus(outcome)});
      }
      return;
    case ActionKind::kPersist:
      return post_to(resources_.disk_queue, &Shard::RunPersist);
    case ActionKind::kDrop:
      return post_to(resources_.disk_queue, &Shard::RunDrop);
    case ActionKind::kWriteManifest:
      return post_to(resources_.low_queue, &Shard::RunWriteManifest);
    case ActionKind::kDropManifest:
      return post_to(resources_.disk_queue, &Shard::RunDropManifest);
    case ActionKind::kDropKept:
    case ActionKind::kGiveUpKept:
      return post_to(resources_.disk_queue, &Shard::RunDropKept);
    case ActionKind::kDropSpares:
      return post_to(resources_.disk_queue, &Shard::RunDropSpares);
    case ActionKind::kRelease:
      return post_to(resources_.disk_queue, &Shard::RunRelease);
  }
}

void Shard::NoteBlockedReason(const BlockedReasons::Cause& cause,
                              absl::string_view name,
                              const absl::Status& status) {
  const std::string why = absl::StrCat(name, " failed: ", status.message());
  if (blocked_reasons_.Note(cause, why)) {
    LOG(WARNING) << "run " << store_->run().run_id() << " shard "
                 << store_->shard()
                 << ", tried again until it succeeds: " << why;
  }
  // A newer plan may have arrived in the meantime.
  blocked_reasons_.Forget(machine_.plan());
}

void Shard::Ended(const ShardAction& action, const absl::Status& status) {
  if (!status.ok()) {
    if (absl::IsResourceExhausted(status)) no_room_ = true;
    MutexLock lock(&mutex_);
    if (action.kind == ActionKind::kReserve) {
      // No blocked reason: the round that needs the space reports it. The same
      // failure may repeat for hours, so it is logged once.
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
      // The checkpoint's fault reports it.
      blocked_reasons_.Erase(BlockedReasons::ToCause(action));
      LOG(ERROR) << "run " << store_->run().run_id() << " shard "
                 << store_->shard() << ", given up: " << action.ToString()
                 << " failed: " << status.message();
    } else {
      NoteBlockedReason(BlockedReasons::ToCause(action), action.ToString(),
                        status);
    }
    machine_.OnFailed(action, status);
    // Tried again at the next Tick: a full disk stays full for a moment.
    retry_ = true;
  } else {
    {
      MutexLock lock(&mutex_);
      blocked_reasons_.Erase(BlockedReasons::ToCause(action));
      if (action.kind == ActionKind::kPrepare) {
        blocked_reasons_.OnPrepared(action.fragment);
      }
    }
    Advance();
  }
  Changed();
}

absl::Status Shard::OnLogError(const v1::ContributionInfo& info,
                               const absl::Status& error) {
  // The contribution was freed in the meantime: not an error of the disk.
  if (absl::IsAborted(error)) return error;
  const auto key = ContributionKey::FromProto(info.key());
  absl::Status told = error;
  {
    MutexLock lock(&mutex_);
    if (absl::IsDataLoss(error)) {
      machine_.OnFault(
          MakeFault("DATA_LOSS", "",
                    absl::StrCat("cannot take ", key.ToString(), ": ",
                                 error.message())));
      told = machine_.CheckServes();
    } else {
      // Does not name the island: many islands may try for hours.
      NoteBlockedReason(
          {BlockedReasons::Cause::kTakeContributions, key.fragment, 0, ""},
          absl::StrCat("take contributions to fragment ", key.fragment), error);
      if (absl::IsResourceExhausted(error)) {
        no_room_ = true;
      } else {
        // UNAVAILABLE for every code of the disk: an island can only wait.
        told = Refuse(Code::kUnavailable, "DISK_FAILS",
                      absl::StrCat("the server's disk: ", error.message(),
                                   "; its operator must look at it"));
      }
    }
  }
  Advance();
  Changed();
  return told;
}

void Shard::OnQuietError(const ShardAction& action, const absl::Status& error) {
  LOG(WARNING) << "run " << store_->run().run_id() << ": " << action.ToString()
               << " failed: " << error.ToString();
  if (!absl::IsDataLoss(error)) return;
  {
    MutexLock lock(&mutex_);
    machine_.OnFault(ToFault(error));
  }
  Advance();
}

}  // namespace atl::server
