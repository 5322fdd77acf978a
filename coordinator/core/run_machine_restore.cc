// Restores a run to a pinned cut.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/layout/ids.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "coordinator/core/rounds/index_updates.h"
#include "coordinator/core/rounds/rounds.h"
#include "coordinator/core/run_machine.h"
#include "coordinator/core/state/mirrored_run.h"

namespace atl::coordinator {
namespace {

// Checkpoints that an error names.
constexpr size_t kNamedMax = 8;

// "commit:N" names the commit N; nullopt: a pin's id.
absl::StatusOr<std::optional<int64_t>> ParseCommit(absl::string_view from) {
  if (!absl::ConsumePrefix(&from, "commit:")) return std::nullopt;
  int64_t commit = 0;
  if (from.empty() ||
      from.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(from, &commit) || commit == INT64_MAX) {
    return InvalidFields(
        {{"from",
          "must be a checkpoint's id, or commit:N with a number N of at least "
          "0"}});
  }
  return commit;
}

std::string NamePin(const v1::Pin& pin) {
  return absl::StrCat(pin.pin_id(), " (commit:", pin.commit_seq() - 1, ")");
}

// Why `shard` neither holds `pin` nor finds it in the mirror; empty: it does.
std::string WhyNotHeld(const ObservedShard& shard, const v1::Pin& pin) {
  if (!shard.reported) return "its server has not reported";
  if (pin.has_mirror()) return "";
  if (!pin.checkpoint()) {
    if (shard.report.persisted_commit_seq() >= pin.commit_seq() - 1) return "";
    return absl::StrCat("it has persisted commit ",
                        shard.report.persisted_commit_seq(), " only");
  }
  for (const v1::ShardCheckpoint& held : shard.report.checkpoints()) {
    if (held.pin_id() != pin.pin_id() ||
        held.commit_seq() != pin.commit_seq()) {
      continue;
    }
    if (held.durable()) return "";
    return held.fault().empty() ? "it is still writing it" : held.fault();
  }
  return "it does not have it";
}

}  // namespace

std::vector<const v1::Pin*> RunMachine::ListSources() const {
  std::vector<const v1::Pin*> pins;
  for (const auto& [pin_id, state] : state_.pins()) {
    // An older program's pin has no point.
    if (state.pin_set().has_point()) pins.push_back(&state.pin_set().pin());
  }
  std::sort(pins.begin(), pins.end(), [](const v1::Pin* a, const v1::Pin* b) {
    return a->commit_seq() < b->commit_seq();
  });
  return pins;
}

absl::Status RunMachine::RefuseSource(absl::string_view from,
                                      int64_t commit) const {
  const std::string run =
      absl::StrCat("run ", state_.run_id(), " has no checkpoint or pin ");
  const std::vector<const v1::Pin*> pins = ListSources();
  if (pins.empty()) {
    return Refuse(absl::StatusCode::kNotFound, "NO_CHECKPOINT",
                  absl::StrCat(run, from, ", and none that a restore can use"));
  }
  // The nearest before and after the commit; without one, the newest.
  std::vector<std::string> named;
  if (commit >= 0) {
    const auto after =
        std::find_if(pins.begin(), pins.end(), [&](const v1::Pin* pin) {
          return pin->commit_seq() > commit;
        });
    if (after != pins.begin()) named.push_back(NamePin(**(after - 1)));
    if (after != pins.end()) named.push_back(NamePin(**after));
  } else {
    for (size_t i = pins.size() - std::min(pins.size(), kNamedMax);
         i < pins.size(); ++i) {
      named.push_back(NamePin(*pins[i]));
    }
  }
  const bool is_lost = IsSuperseded(state_.restores(), commit);
  return Refuse(absl::StatusCode::kNotFound, "NO_CHECKPOINT",
                absl::StrCat(run, commit >= 0 ? "of " : "", from,
                             is_lost ? ", which an earlier restore took out of "
                                       "its past"
                                     : "",
                             commit >= 0 ? "; the nearest: " : "; it has ",
                             absl::StrJoin(named, ", ")));
}

bool RunMachine::IsHeld(const v1::Pin& pin) const {
  return std::all_of(observed_.shards.begin(), observed_.shards.end(),
                     [&](const ObservedShard& shard) {
                       return WhyNotHeld(shard, pin).empty();
                     });
}

const v1::Pin* RunMachine::FindDurableCheckpoint() const {
  const std::vector<const v1::Pin*> pins = ListSources();
  // The manifest of a cut does not tell that a block is damaged.
  const int64_t damaged = HasRestoreFault("DATA_LOSS")
                              ? state_.restores().back().cut_commit_seq()
                              : -1;
  const auto newest =
      std::find_if(pins.rbegin(), pins.rend(), [&](const v1::Pin* pin) {
        return pin->checkpoint() && !pin->suspect() &&
               pin->commit_seq() != damaged && IsHeld(*pin);
      });
  return newest == pins.rend() ? nullptr : *newest;
}

absl::Status RunMachine::CheckHeld(const v1::Pin& pin) const {
  for (size_t shard = 0; shard < observed_.shards.size(); ++shard) {
    const std::string why = WhyNotHeld(observed_.shards[shard], pin);
    if (why.empty()) continue;
    if (!observed_.shards[shard].reported) {
      return RefuseForNow(
          absl::StatusCode::kUnavailable, "NOT_REPORTED",
          absl::StrCat("shard ", shard, " on server ",
                       state_.server_ids()[shard], " has not reported since ",
                       state_.just_restored() ? "the restore"
                                              : "the coordinator's start",
                       ", so it is not known whether it holds ",
                       pin.pin_id()),
          absl::Seconds(1));
    }
    std::vector<std::string> held;
    for (const v1::Pin* other : ListSources()) {
      if (IsHeld(*other)) held.push_back(NamePin(*other));
    }
    if (held.size() > kNamedMax) held.erase(held.begin(), held.end() - kNamedMax);
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "NOT_DURABLE",
        absl::StrCat("shard ", shard, " on server ", state_.server_ids()[shard],
                     " does not hold ", pin.pin_id(), ": ", why, "; ",
                     held.empty()
                         ? std::string("no cut is durable on every shard now")
                         : absl::StrCat("durable on every shard: ",
                                        absl::StrJoin(held, ", "))));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::Pin> RunMachine::FindSource(const std::string& from) const {
  if (from.empty()) {
    const v1::Pin* const newest = FindDurableCheckpoint();
    if (newest != nullptr) return *newest;
    const std::vector<const v1::Pin*> pins = ListSources();
    const auto last = std::find_if(
        pins.rbegin(), pins.rend(), [](const v1::Pin* pin) {
          return pin->checkpoint() && !pin->suspect();
        });
    if (last != pins.rend()) RETURN_IF_ERROR(CheckHeld(**last));
    const bool has_suspect =
        std::any_of(pins.begin(), pins.end(),
                    [](const v1::Pin* pin) { return pin->suspect(); });
    return Refuse(absl::StatusCode::kNotFound, "NO_CHECKPOINT",
                  absl::StrCat("run ", state_.run_id(),
                               " has no checkpoint that a restore can use",
                               has_suspect ? "; those that it has are suspect: "
                                             "name one with --from"
                                           : ""));
  }
  ASSIGN_OR_RETURN(const std::optional<int64_t> commit, ParseCommit(from));
  if (!commit.has_value()) RETURN_IF_ERROR(CheckId("from", from));
  absl::Status refusal;
  for (const v1::Pin* pin : ListSources()) {
    if (commit.has_value() ? pin->commit_seq() != *commit + 1
                           : pin->pin_id() != from) {
      continue;
    }
    // One of several pins of a cut may be durable before the others.
    const absl::Status held = CheckHeld(*pin);
    if (held.ok()) return *pin;
    refusal.Update(held);
  }
  if (!refusal.ok()) return refusal;
  return RefuseSource(from, commit.value_or(-1));
}

bool RunMachine::HasRestoreFault(absl::string_view kind) const {
  // The newest versions of all shards are those of the cut.
  return state_.just_restored() &&
         std::any_of(observed_.shards.begin(), observed_.shards.end(),
                     [kind](const ObservedShard& shard) {
                       return shard.reported &&
                              absl::StartsWith(shard.report.fault(), kind);
                     });
}

bool RunMachine::IsRestoredTo(const std::string& from) const {
  if (!state_.just_restored() || HasRestoreFault("SHARD_BEHIND") ||
      HasOtherMirrorOwner()) {
    return false;
  }
  const v1::Restore& restore = state_.restores().back();
  if (from.empty()) return !HasRestoreFault("DATA_LOSS");
  return from == restore.pin_id() ||
         from == absl::StrCat("commit:", restore.cut_commit_seq() - 1);
}

absl::Status RunMachine::Take(const event::Restore& asked, RunAnswer& answer) {
  const v1::RestoreRunRequest& request = asked.request;
  if (!request.run_uid().empty() && request.run_uid() != state_.run_uid()) {
    return Refuse(absl::StatusCode::kNotFound, "NO_SUCH_RUN",
                  absl::StrCat("there is no run ", state_.run_id(),
                               " with run_uid ",
                               request.run_uid().substr(0, 64)));
  }
  if (state_.state() == v1::RUN_STATE_CANCELLED) return CheckNotEnded();
  if (!state_.started() || state_.server_ids().empty()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_STARTED",
                  state_.started() ? "the run's shards have no servers yet"
                                   : "the run has no version 0 yet");
  }
  v1::RestoreRunResponse& restored = answer.restored;
  if (IsRestoredTo(request.from())) {
    const v1::Restore& restore = state_.restores().back();
    const auto pin = state_.pins().find(restore.pin_id());
    if (pin != state_.pins().end()) {
      *restored.mutable_pin() = pin->second.pin_set().pin();
    } else {
      restored.mutable_pin()->set_pin_id(restore.pin_id());
      restored.mutable_pin()->set_commit_seq(restore.cut_commit_seq());
      for (const v1::FragmentVersion& version : state_.restored_cut()) {
        *restored.mutable_pin()->add_cut() = version;
      }
    }
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const v1::Pin pin, FindSource(request.from()));
  const int64_t kept_tokens =
      state_.pins().at(pin.pin_id()).pin_set().point().fragment_token_count();
  *restored.mutable_pin() = pin;
  restored.set_lost_commit_count(CountPast(
      state_.restores(), pin.commit_seq(), state_.commit_seq() + 1));
  const auto fragment_count = static_cast<int64_t>(state_.fragments().size());
  restored.set_lost_token_count(state_.merged_token_count() -
                                kept_tokens / fragment_count);
  if (request.dry_run()) return absl::OkStatus();

  // Otherwise they would be in no total: nothing decides on them afterwards.
  std::vector<v1::ContributionOutcome> dropped;
  for (int32_t f = 0; f < fragment_count; ++f) {
    for (const auto& [place, seen] : observed_.index.Seen(f)) {
      dropped.push_back(MakeOutcome(seen.key, v1::OUTCOME_DROPPED));
    }
  }
  EmitOutcomes(std::move(dropped));
  // Above that of another owner in the mirror: the run takes its place there.
  EmitRestore(
      pin, std::max(state_.run_epoch(), observed_.mirror_owner_epoch) + 1,
      state_.commit_seq() + 1);
  restored.set_changed(true);
  reasons_.push_back(absl::StrCat(
      "is restored to ", pin.pin_id(), ", before commit ", pin.commit_seq(),
      ": ", restored.lost_commit_count(), " commits and ",
      restored.lost_token_count(), " tokens are lost"));
  ForgetEpoch();
  CompleteIfDone();
  Advance();
  return absl::OkStatus();
}

void RunMachine::EmitRestore(const v1::Pin& pin, int64_t run_epoch,
                             int64_t commit_seq) {
  storage::v1::Record record;
  storage::v1::RunRestored& body = *record.mutable_run_restored();
  v1::Restore& restore = *body.mutable_restore();
  restore.set_run_epoch(run_epoch);
  restore.set_commit_seq(commit_seq);
  restore.set_cut_commit_seq(pin.commit_seq());
  restore.set_pin_id(pin.pin_id());
  restore.set_before_commit_seq(state_.commit_seq());
  *restore.mutable_time() = ToProto(now_);
  *body.mutable_cut() = pin.cut();
  *body.mutable_point() = state_.pins().at(pin.pin_id()).pin_set().point();
  Emit(std::move(record));
}

absl::Status RunMachine::Take(const event::Supersede& supersede,
                              RunAnswer& answer) {
  ResizeObservations();
  if (state_.state() == v1::RUN_STATE_CANCELLED) return absl::OkStatus();
  for (size_t slot = 0; slot < state_.members().size(); ++slot) {
    const Member& member = state_.members()[slot];
    storage::v1::MemberSet record = member.record;
    if (member.present()) record.set_state(v1::ISLAND_STATE_LOST);
    record.clear_session_sha256();
    record.set_island_epoch(record.island_epoch() +
                            supersede.jump_count * kEpochJump);
    EmitMember(std::move(record));
  }
  const v1::Pin* source = nullptr;
  for (const v1::Pin* pin : ListSources()) {
    // A suspect one only if there is no other.
    if (pin->checkpoint() && (!pin->suspect() || source == nullptr ||
                              source->suspect())) {
      source = pin;
    }
  }
  if (source == nullptr) {
    if (state_.ended()) return absl::OkStatus();
    Emit(MakeStateRecord(
        v1::RUN_STATE_PAUSED,
        absl::StrCat("the coordinator's log was lost, and the copy in its place "
                     "has no checkpoint of this run. If the run had not gone "
                     "further than the copy, `atoll run resume ",
                     state_.run_id(), "` continues; else cancel it")));
    return absl::OkStatus();
  }
  const v1::Pin pin = *source;  // The record moves it.
  EmitRestore(pin, state_.run_epoch() + supersede.jump_count * kEpochJump,
              JumpSeq(state_.commit_seq(), supersede.jump_count));
  ForgetEpoch();
  if (state_.server_ids().empty()) {
    // It continues from the mirror, and waits for servers.
    Emit(MakeStateRecord(v1::RUN_STATE_STARTING, ""));
    return absl::OkStatus();
  }
  CompleteIfDone();
  return absl::OkStatus();
}

void RunMachine::ForgetEpoch() {
  ForgetReports(observed_);
  recall_timer_ = absl::InfiniteFuture();
  for (RoundTimers& timers : observed_.timers) timers = RoundTimers();
  for (AskedSlots& asked : observed_.asked) asked = AskedSlots();
  observed_.mirror_error.clear();
  std::erase_if(observed_.pin_ends, [&](const auto& entry) {
    return !state_.pins().contains(entry.first);
  });
  for (const Member& member : state_.members()) {
    ObservedMember& seen = observed_.members[member.record.slot()];
    seen.ClearSteps();
    seen.idle_round_count = 0;
    seen.idle_duration = absl::ZeroDuration();
    seen.idle_since = member.present() ? now_ : absl::InfiniteFuture();
    if (member.present()) {
      observed_.leases.Set(member.record.slot(),
                           now_ + IslandLeaseDuration(state_.spec()));
    }
  }
}

}  // namespace atl::coordinator
