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
#include "server/shard/decided_status.h"

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
  shape.judged =
      FindNeeds(store.run().spec().outer().merge()) != MergeNeeds::kNothing;
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
      store_->versions().Commit(action.fragment, action.version,
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
        store_->versions().Remove(action.fragment, action.version);
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
      machine_.OnFault(
          absl::StrCat("cannot take ", key.ToString(), ": ", error.ToString()));
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

}  // namespace atl::server
