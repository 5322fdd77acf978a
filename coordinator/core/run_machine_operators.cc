// Requests of operators to a run: pause, resume, cancel, remove, export.

#include "coordinator/core/run_machine.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/layout/ids.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "coordinator/core/rounds/recalls.h"

namespace atl::coordinator {
namespace {

constexpr absl::Duration kPinLeaseDefault = absl::Minutes(10);
constexpr absl::Duration kPinLeaseMax = absl::Hours(24);

}  // namespace

bool IsCheckpointId(absl::string_view pin_id) {
  if (pin_id == "final") return true;
  return absl::ConsumePrefix(&pin_id, "round-") && !pin_id.empty() &&
         pin_id.find_first_not_of("0123456789") == absl::string_view::npos;
}

absl::Status RunMachine::Take(const event::Pause& pause, RunAnswer& answer) {
  RETURN_IF_ERROR(CheckNotEnded());
  if (state_.state() != v1::RUN_STATE_PAUSED) {
    Emit(MakeStateRecord(v1::RUN_STATE_PAUSED, "an operator paused it"));
  }
  Advance();
  return absl::OkStatus();
}

absl::Status RunMachine::Take(const event::Resume& resume, RunAnswer& answer) {
  RETURN_IF_ERROR(CheckNotEnded());
  const std::string fault = ShardFault(state_, observed_);
  if (!fault.empty()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "SHARD_FAULT", fault);
  }
  // An operator who resumes what the guard has stopped, or what is active all
  // the same, accepts the commits outside the band.
  const bool was_paused = state_.state() == v1::RUN_STATE_PAUSED;
  const bool accepts = state_.FindHeld() != nullptr &&
                       (state_.paused_by_guard() ||
                        state_.state() == v1::RUN_STATE_ACTIVE);
  if (was_paused || accepts) {
    storage::v1::Record record = MakeStateRecord(
        state_.started() && !state_.server_ids().empty()
            ? v1::RUN_STATE_ACTIVE
            : v1::RUN_STATE_STARTING,
        "");
    record.mutable_run_state_set()->set_guard_accepted(accepts);
    Emit(std::move(record));
  }
  if (accepts) {
    reasons_.push_back("an operator accepts it: the band is reset");
    SetSuspect(/*suspect=*/false, /*version_min=*/0);
    CompleteIfDone();
  }
  if (was_paused) {
    for (RoundTimers& timers : observed_.timers) {
      timers = RoundTimers();
      timers.wait.received_time = now_;
    }
  }
  Advance();
  return absl::OkStatus();
}

absl::Status RunMachine::Take(const event::Cancel& cancel, RunAnswer& answer) {
  if (state_.state() == v1::RUN_STATE_CANCELLED) return absl::OkStatus();
  RETURN_IF_ERROR(CheckNotEnded());
  const std::string reason = "the run was cancelled";
  for (int32_t f = 0; f < state_.fragments().size(); ++f) {
    std::vector<v1::ContributionOutcome> outcomes =
        SettleCancelled(state_, observed_, f);
    if (state_.fragments()[f].phase != RoundPhase::kIdle) {
      Emit(MakeAbort(state_, f, reason, std::move(outcomes)));
    } else {
      EmitOutcomes(std::move(outcomes));
    }
  }
  Emit(MakeStateRecord(v1::RUN_STATE_CANCELLED, "an operator cancelled it"));
  Advance();
  return absl::OkStatus();
}

absl::Status RunMachine::Take(const event::RemoveIsland& remove,
                              RunAnswer& answer) {
  const auto& [island_id, readmit, revoke] = remove;
  RETURN_IF_ERROR(CheckNotEnded());
  const Member* const found = state_.FindMember(island_id);
  if (found == nullptr) {
    return Refuse(absl::StatusCode::kNotFound, "NO_SUCH_ISLAND",
                  absl::StrCat("run ", state_.run_id(),
                               " has never had an island ", island_id));
  }
  if (found->removed() == readmit || (revoke && !found->record.revoked())) {
    storage::v1::MemberSet member = found->record;
    member.set_state(readmit ? v1::ISLAND_STATE_READMITTED
                             : v1::ISLAND_STATE_REMOVED);
    if (revoke) member.set_revoked(true);
    EmitMember(std::move(member));
    reasons_.push_back(
        absl::StrCat("island ", island_id,
                     readmit  ? " may join again: an operator readmitted it"
                     : revoke ? " is revoked by an operator"
                              : " is removed by an operator"));
  }
  Advance();
  return absl::OkStatus();
}

absl::Status RunMachine::Take(const event::RevokeToken& revoke,
                              RunAnswer& answer) {
  RETURN_IF_ERROR(CheckNotEnded());
  for (size_t slot = 0; slot < state_.members().size(); ++slot) {
    const Member& member = state_.members()[slot];
    if (!member.present() || member.record.token_id() != revoke.token_id) {
      continue;
    }
    // Not REMOVED: others may have the name and the slot.
    storage::v1::MemberSet left = member.record;
    left.set_state(v1::ISLAND_STATE_LEFT);
    reasons_.push_back(absl::StrCat("island ", left.island_id(),
                                    " is out: an operator revoked its token"));
    EmitMember(std::move(left));
  }
  Advance();
  return absl::OkStatus();
}

absl::Status RunMachine::CheckKeep(
    const v1::ExportCheckpointRequest& request) const {
  const int64_t bytes = request.keep_bytes_max();
  if (bytes < 0) {
    return InvalidFields({{"keep_bytes_max", "must be at least 0"}});
  }
  if (bytes == 0) return absl::OkStatus();
  if (state_.spec().durability() == v1::DURABILITY_ISLAND) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NOTHING_TO_KEEP",
                  "at durability level ISLAND servers merge contributions "
                  "immediately and keep none: to replay a run, create it at "
                  "level PROCESS or MACHINE");
  }
  const auto held = state_.pins().find(request.pin_id());
  if (held != state_.pins().end() &&
      held->second.pin_set().pin().keep_bytes_max() != bytes) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "PIN_IS_MADE",
        absl::StrCat("pin ", request.pin_id(), " was made to keep ",
                     held->second.pin_set().pin().keep_bytes_max(),
                     " bytes of contributions, which cannot be changed: "
                     "choose another pin id"));
  }
  return absl::OkStatus();
}

v1::Pin RunMachine::MakePin(const std::string& pin_id, bool checkpoint) const {
  v1::Pin pin;
  pin.set_commit_seq(state_.commit_seq() + 1);
  pin.set_pin_id(pin_id);
  for (const FragmentState& fragment : state_.fragments()) {
    *pin.add_cut() = fragment.newest;
  }
  pin.set_checkpoint(checkpoint);
  return pin;
}

absl::Status RunMachine::Take(const event::Export& asked, RunAnswer& answer) {
  const v1::ExportCheckpointRequest& request = asked.request;
  RETURN_IF_ERROR(CheckId("pin_id", request.pin_id()));
  absl::Duration lease = FromProto(request.lease_duration());
  if (lease < absl::ZeroDuration() || lease > kPinLeaseMax) {
    return InvalidFields(
        {{"lease_duration", "must be at least 0 and at most 24 h"}});
  }
  if (lease == absl::ZeroDuration()) lease = kPinLeaseDefault;
  RETURN_IF_ERROR(CheckKeep(request));
  const auto held = state_.pins().find(request.pin_id());
  if (request.release()) {
    if (held != state_.pins().end()) {
      if (held->second.pin_set().pin().checkpoint() && !state_.ended()) {
        return Refuse(
            absl::StatusCode::kFailedPrecondition, "CHECKPOINT",
            absl::StrCat("pin ", request.pin_id(), " is a checkpoint of run ",
                         state_.run_id(), " and stays until the run has ended"));
      }
      EmitRelease(request.pin_id());
    }
    return absl::OkStatus();
  }
  if (!state_.started()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_STARTED",
                  "the run has no version 0 yet");
  }
  if (held == state_.pins().end()) {
    if (IsCheckpointId(request.pin_id())) {
      return Refuse(absl::StatusCode::kNotFound, "NO_SUCH_CHECKPOINT",
                    absl::StrCat("run ", state_.run_id(), " has no checkpoint ",
                                 request.pin_id(),
                                 ": `atoll run show` lists those it has"));
    }
    if (observed_.pin_ends.size() >= kPinLeasesMax) {
      absl::Time first = absl::InfiniteFuture();
      for (const auto& [id, end] : observed_.pin_ends)
        first = std::min(first, end);
      return RefuseForNow(absl::StatusCode::kResourceExhausted, "TOO_MANY_PINS",
                          absl::StrCat(kPinLeasesMax,
                                       " cuts are pinned: release one, or wait "
                                       "for a lease to end"),
                          first - now_);
    }
    v1::Pin pin = MakePin(request.pin_id(), /*checkpoint=*/false);
    pin.set_keep_bytes_max(request.keep_bytes_max());
    EmitPin(pin, lease);
  } else if (!held->second.pin_set().pin().checkpoint()) {
    // A reader never shortens this pin's lease.
    const v1::Pin& pin = held->second.pin_set().pin();
    const absl::Duration before =
        FromProto(held->second.pin_set().lease_duration());
    if (pin.keep_bytes_max() > 0 && request.keep_bytes_max() == 0) {
      lease = std::max(lease, before);
    }
    if (before != lease) EmitPin(pin, lease);
    observed_.pin_ends[request.pin_id()] = now_ + lease;
  }
  *answer.exported.mutable_pin() =
      state_.pins().at(request.pin_id()).pin_set().pin();
  return absl::OkStatus();
}

}  // namespace atl::coordinator
