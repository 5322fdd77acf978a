// Completes checkpoints in the mirror: when a manifest is due, what it says, and
// which checkpoints stay.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status/cut_utf8.h"
#include "base/time/proto_time.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/run_machine.h"
#include "coordinator/core/state/mirrored_run.h"

namespace atl::coordinator {
namespace {

constexpr size_t kErrorBytesMax = 512;

// The shard's copy of the checkpoint; null: the mirror does not have all of it.
const v1::ShardCheckpoint* FindCopy(const ObservedShard& shard,
                                    const v1::Pin& pin) {
  for (const v1::ShardCheckpoint& held : shard.report.checkpoints()) {
    if (held.pin_id() == pin.pin_id() &&
        held.commit_seq() == pin.commit_seq() && held.mirrored()) {
      return &held;
    }
  }
  return nullptr;
}

}  // namespace

bool RunMachine::HasOtherMirrorOwner() const {
  return observed_.mirror_owner_epoch >= state_.run_epoch();
}

const storage::v1::PinSet* RunMachine::FindMirrorDue() const {
  if (!state_.spec().checkpoint().mirror() || HasOtherMirrorOwner()) {
    return nullptr;
  }
  const storage::v1::PinSet* newest = nullptr;
  for (const auto& [pin_id, pin_state] : state_.pins()) {
    const v1::Pin& pin = pin_state.pin_set().pin();
    if (!pin.checkpoint() || IsMirrored(pin) ||
        !pin_state.pin_set().has_point() ||
        (newest != nullptr && pin.commit_seq() < newest->pin().commit_seq())) {
      continue;
    }
    const bool is_copied =
        std::all_of(observed_.shards.begin(), observed_.shards.end(),
                    [&](const ObservedShard& shard) {
                      return FindCopy(shard, pin) != nullptr;
                    });
    if (is_copied) newest = &pin_state.pin_set();
  }
  return newest;
}

std::optional<MirrorWork> RunMachine::FindMirrorWork() const {
  const storage::v1::PinSet* const due =
      refusal_.ok() ? FindMirrorDue() : nullptr;
  if (due == nullptr) return std::nullopt;
  MirrorWork work;
  storage::v1::MirrorManifest& manifest = work.manifest;
  manifest.set_format(kManifestFormat);
  manifest.set_run_id(state_.run_id());
  manifest.set_run_uid(state_.run_uid());
  manifest.set_run_epoch(state_.run_epoch());
  *manifest.mutable_spec() = state_.spec();
  *manifest.mutable_pin() = due->pin();
  manifest.mutable_pin()->clear_mirror();
  *manifest.mutable_point() = due->point();
  *manifest.mutable_started()->mutable_version0() = state_.version0();
  *manifest.mutable_started()->mutable_version0_norms() =
      state_.version0_norms();
  for (const Member& member : state_.members()) {
    storage::v1::MemberSnapshot& added = *manifest.add_members();
    added = ToSnapshot(member);
    storage::v1::MemberSet& record = *added.mutable_member();
    // A restore needs neither, and older programs know neither.
    added.clear_totals();
    added.clear_newest_unpushed();
    record.clear_session_sha256();
    record.clear_token_id();
    const int64_t seq_max =
        state_.outcomes().SeqMax(record.slot(), FindSeqMax(member));
    record.set_next_seq(std::max(record.next_seq(), seq_max + 1));
  }
  manifest.set_shard_count(static_cast<int32_t>(observed_.shards.size()));
  for (size_t shard = 0; shard < observed_.shards.size(); ++shard) {
    const v1::ShardCheckpoint& copy =
        *FindCopy(observed_.shards[shard], due->pin());
    if (manifest.array_names().empty()) {
      *manifest.mutable_array_names() = copy.array_names();
    }
    for (const v1::MirroredPart& part : copy.mirrored_parts()) {
      storage::v1::MirrorPart& added = *manifest.add_parts();
      added.set_shard(static_cast<int32_t>(shard));
      added.set_fragment(part.fragment());
      added.set_sha256(part.sha256());
      added.set_size_bytes(part.size_bytes());
    }
  }
  for (const auto& [pin_id, pin_state] : state_.pins()) {
    const v1::Pin& pin = pin_state.pin_set().pin();
    if (!pin.checkpoint()) continue;
    if (pin.has_mirror() && pin.pin_id() != due->pin().pin_id()) {
      work.kept.emplace_back(pin.mirror().run_epoch(), pin.commit_seq());
    }
    if (!IsMirrored(pin)) {
      work.kept.emplace_back(state_.run_epoch(), pin.commit_seq());
    }
  }
  return work;
}

absl::Status RunMachine::Take(const event::MirrorEnded& ended,
                              RunAnswer& answer) {
  if (ended.run_epoch != state_.run_epoch()) return absl::OkStatus();
  if (!ended.error.empty()) {
    observed_.mirror_error =
        std::string(CutUtf8(ended.error, kErrorBytesMax));
    if (ended.owner_epoch > observed_.mirror_owner_epoch) {
      observed_.mirror_owner_epoch = ended.owner_epoch;
      plan_change_.servers = true;  // The shards copy no checkpoint any longer.
    }
    return absl::OkStatus();
  }
  observed_.mirror_error.clear();
  const auto pin = state_.pins().find(ended.pin_id);
  if (pin == state_.pins().end() ||
      pin->second.pin_set().pin().commit_seq() != ended.commit_seq ||
      IsMirrored(pin->second.pin_set().pin())) {
    return absl::OkStatus();
  }
  storage::v1::Record record;
  *record.mutable_pin_set() = pin->second.pin_set();
  v1::PinMirror& mirror =
      *record.mutable_pin_set()->mutable_pin()->mutable_mirror();
  mirror.Clear();
  mirror.set_run_epoch(ended.run_epoch);
  *mirror.mutable_create_time() = ToProto(now_);
  Emit(std::move(record));
  reasons_.push_back(absl::StrCat("checkpoint ", ended.pin_id,
                                  " is whole in the mirror"));
  return absl::OkStatus();
}

}  // namespace atl::coordinator
