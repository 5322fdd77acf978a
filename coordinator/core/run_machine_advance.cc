// Decides what is due in a run: each part decides from the state, the reports
// and the time, until nothing more follows.

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/features/features.h"
#include "base/layout/digest.h"
#include "base/layout/fragment_schedule.h"
#include "base/layout/run_timing.h"
#include "base/status/check.h"
#include "base/time/proto_time.h"
#include "coordinator/core/rounds/async_rounds.h"
#include "coordinator/core/rounds/data_lease.h"
#include "coordinator/core/rounds/index_updates.h"
#include "coordinator/core/rounds/kept_checkpoints.h"
#include "coordinator/core/rounds/measured_speeds.h"
#include "coordinator/core/rounds/open_round.h"
#include "coordinator/core/rounds/recalls.h"
#include "coordinator/core/rounds/rounds.h"
#include "coordinator/core/rounds/run_end.h"
#include "coordinator/core/rounds/sit_out.h"
#include "coordinator/core/rounds/verdicts.h"
#include "coordinator/core/run_machine.h"
#include "coordinator/core/state/guard.h"

namespace atl::coordinator {

void RunMachine::Advance() {
  ResizeObservations();
  if (!refusal_.ok()) return;
  contribution_count_ = 0;
  is_cut_ = false;
  // Each pass but the last makes a record. The limit catches our own bugs.
  for (int pass = 0; !is_cut_ && AdvanceOnce(); ++pass) {
    CHECK_LT(pass, 100000);
    is_cut_ = IsFull();
  }
  for (size_t f = 0; is_cut_ && f < is_in_pass_.size(); ++f) {
    if (is_in_pass_[f]) observed_.SetDue(static_cast<int32_t>(f));
  }
  if (timers_revision_ == state_.revision()) return;
  recall_timer_ = RecallTimer(state_, observed_);
  sit_out_timer_ = SitOutTimer(state_, due_);
  timers_revision_ = state_.revision();
}

bool RunMachine::AdvanceOnce() {
  const int64_t revision = state_.revision();
  waits_for_.clear();
  is_in_pass_.assign(state_.fragments().size(), false);
  for (size_t f = 0; f < is_in_pass_.size(); ++f) {
    is_in_pass_[f] = std::exchange(observed_.decisions[f].is_due, false);
  }
  ExpirePins();
  SettleEnded();
  if (state_.ended()) {
    // Nothing is measured any more.
    for (FragmentContributions& fragment : observed_.index.fragments) {
      fragment.unmeasured.clear();
    }
    return state_.revision() != revision;
  }
  ExpireLeases();
  NoteAways();
  PauseOnFault();
  PauseOnGuard();
  if (UpdateRecalls(state_, now_, observed_)) {
    plan_change_.all_slots = true;
    timers_revision_ = -1;
  }
  if (!state_.started() || state_.server_ids().empty()) {
    if (state_.state() == v1::RUN_STATE_STARTING) AdvanceStart();
    return state_.revision() != revision;
  }
  if (state_.just_restored() && state_.state() == v1::RUN_STATE_ACTIVE) {
    CompleteIfDone();
    if (state_.ended()) return true;
  }
  AdvanceSealed();
  if (state_.ended() || IsFull()) return true;
  NoteSpeeds();
  if (state_.state() == v1::RUN_STATE_ACTIVE) AdvanceOpen();
  return state_.revision() != revision;
}

void RunMachine::SettleEnded() {
  std::optional<bool> has_revoked;
  for (int32_t f = 0; state_.started() && f < state_.fragments().size(); ++f) {
    if (!IsDue(f)) continue;
    if (!has_revoked.has_value()) has_revoked = HasRevoked(state_);
    if (*has_revoked) EmitOutcomes(SettleRevoked(state_, observed_, f));
    if (!IsAsync(state_.spec().schedule())) {
      EmitOutcomes(SettleOld(state_, observed_, f));
      continue;
    }
    observed_.index.fragments[f].unsettled.clear();  // It looks at all.
    EmitOutcomes(SettleAsync(state_, observed_, f));
  }
}

void RunMachine::NoteSpeeds() {
  bool has_measured = false;
  for (int32_t f = 0; f < state_.fragments().size(); ++f) {
    if (!IsDue(f)) continue;
    const ReceivedNote note = NoteReceived(state_, f, now_, observed_);
    has_measured |= note.has_measured;
    if (note.must_repeat) observed_.SetDue(f);
  }
  if (!has_measured) return;
  for (int32_t f = 0; f < state_.fragments().size(); ++f) {
    if (observed_.decisions[f].reads_speeds) is_in_pass_[f] = true;
  }
}

void RunMachine::SetDueByTime() {
  if (state_.ended()) return;
  if (due_ >= sit_out_timer_) {
    observed_.SetAllDue();
    timers_revision_ = -1;
  }
  for (int32_t f = 0; f < state_.fragments().size(); ++f) {
    const RoundPhase phase = state_.fragments()[f].phase;
    const absl::Time timer =
        phase == RoundPhase::kSealed ? recall_timer_
        : phase == RoundPhase::kOpen ? SealTimer(state_, f, observed_.timers[f])
                                     : absl::InfiniteFuture();
    if (timer > due_) continue;
    observed_.SetDue(f);
    timers_revision_ = -1;
  }
}

void RunMachine::Wait(const std::string& reason) {
  if (waits_for_.empty()) waits_for_ = reason;
}

void RunMachine::PauseOnFault() {
  const std::string fault = ShardFault(state_, observed_);
  if (fault.empty() || (state_.state() == v1::RUN_STATE_PAUSED &&
                        state_.state_reason() == fault)) {
    return;
  }
  Emit(MakeStateRecord(v1::RUN_STATE_PAUSED, fault));
  reasons_.push_back(absl::StrCat("is paused: ", fault));
}

bool RunMachine::PausesOnGuard() const {
  return state_.spec().guard().on_norm() == v1::GUARD_ACTION_PAUSE &&
         state_.FindHeld() != nullptr;
}

void RunMachine::PauseOnGuard() {
  if (!PausesOnGuard() || state_.state() != v1::RUN_STATE_ACTIVE) return;
  const v1::Pin* newest = nullptr;
  for (const auto& [pin_id, state] : state_.pins()) {
    const v1::Pin& pin = state.pin_set().pin();
    if (pin.checkpoint() && !pin.suspect() &&
        (newest == nullptr || pin.commit_seq() > newest->commit_seq())) {
      newest = &pin;
    }
  }
  const std::string& run_id = state_.run_id();
  storage::v1::Record record = MakeStateRecord(
      v1::RUN_STATE_PAUSED,
      absl::StrCat(
          state_.FindHeld()->reason(), ". ",
          newest == nullptr
              ? std::string("There is no checkpoint before it")
              : absl::StrCat("`atoll run restore ", run_id, " --from ",
                             newest->pin_id(),
                             "` goes back to the newest checkpoint before it"),
          "; `atoll run resume ", run_id, "` accepts it as good"));
  record.mutable_run_state_set()->set_by_guard(true);
  reasons_.push_back(
      absl::StrCat("is paused: ", record.run_state_set().reason()));
  Emit(std::move(record));
}

void RunMachine::AdvanceStart() {
  if (state_.server_ids().empty()) {
    std::vector<std::string> alive = servers_.AliveServers();
    std::string unfit;
    std::erase_if(alive, [&](const std::string& id) {
      const uint64_t features = servers_.FindServer(id)->features;
      std::string missing = DescribeMissing(features);
      // It would take a deleted run's files for this run's, and delete this
      // run's files for them once it is upgraded.
      if ((PeerFeatures(features) & kRunUid) == 0 &&
          servers_.HasDeletedRun(id, state_.run_id())) {
        missing = DescribeFeatures(kRunUid);
      }
      if (missing.empty()) return false;
      unfit = absl::StrCat("; server ", id, " lacks ", missing,
                           ": upgrade its program");
      return true;
    });
    const int32_t needed = state_.spec().server_count();
    if (static_cast<int64_t>(alive.size()) < needed) {
      return Wait(absl::StrCat("waits for servers: ", alive.size(), " of ",
                               needed, " are registered", unfit));
    }
    alive.resize(needed);
    std::sort(alive.begin(), alive.end());
    storage::v1::Record record;
    record.mutable_run_placed()->set_placement_epoch(1);
    for (const std::string& id : alive) {
      record.mutable_run_placed()->add_server_ids(id);
    }
    Emit(std::move(record));
    reasons_.push_back(
        absl::StrCat("its shards are placed on ", needed, " servers"));
    if (!state_.started()) return;
    // It continues from a checkpoint: the shards go to that cut.
    Emit(MakeStateRecord(v1::RUN_STATE_ACTIVE, ""));
    reasons_.push_back("continues from a checkpoint in the mirror");
    return;
  }
  const auto fragment_count = static_cast<int32_t>(state_.fragments().size());
  std::vector<Digest128> digests(fragment_count);
  std::vector<double> norms_squared(fragment_count);
  bool has_norms = true;
  for (size_t shard = 0; shard < observed_.shards.size(); ++shard) {
    const v1::ShardReport& report = observed_.shards[shard].report;
    if (!observed_.shards[shard].reported || !report.initialized() ||
        report.version0_digests_size() != fragment_count) {
      return Wait(absl::StrCat(
          "waits for shard ", shard, " on ", state_.server_ids()[shard],
          state_.spec().init().import()
              ? absl::StrCat(" to be given version 0: atoll run import ",
                             state_.run_id())
              : std::string(" to have made version 0")));
    }
    for (int32_t f = 0; f < fragment_count; ++f) {
      digests[f] += Digest128::FromProto(report.version0_digests(f));
    }
    has_norms &= report.version0_norms_squared_size() == fragment_count;
    for (int32_t f = 0; has_norms && f < fragment_count; ++f) {
      norms_squared[f] += report.version0_norms_squared(f);
      has_norms &= norms_squared[f] >= 0 && std::isfinite(norms_squared[f]);
    }
  }
  const v1::InitSpec& init = state_.spec().init();
  for (int32_t f = 0; f < init.fragment_digests_size(); ++f) {
    if (digests[f].ToHex() == init.fragment_digests(f)) continue;
    return Wait(absl::StrCat(
        "cannot start: the servers hold another model than the run was created "
        "for: fragment ",
        f, " has digest ", digests[f].ToHex(), ", not ",
        init.fragment_digests(f), "; cancel it and create another run"));
  }
  storage::v1::Record record;
  for (int32_t f = 0; f < fragment_count; ++f) {
    v1::FragmentVersion& version =
        *record.mutable_run_started()->add_version0();
    version.set_fragment(f);
    *version.mutable_digest() = digests[f].ToProto();
    if (has_norms) {
      record.mutable_run_started()->add_version0_norms(
          std::sqrt(norms_squared[f]));
    }
  }
  Emit(std::move(record));
  Emit(MakeStateRecord(v1::RUN_STATE_ACTIVE, ""));
  reasons_.push_back("every shard has version 0: it is active");
}

void RunMachine::ExpireLeases() {
  for (const int32_t slot : observed_.leases.ListDue(due_)) {
    storage::v1::MemberSet lost = state_.members()[slot].record;
    lost.set_state(v1::ISLAND_STATE_LOST);
    reasons_.push_back(absl::StrCat(
        "island ", lost.island_id(), " is lost: it was silent for ",
        absl::FormatDuration(IslandLeaseDuration(state_.spec()))));
    EmitMember(std::move(lost));
  }
}

void RunMachine::NoteAways() {
  for (const int32_t slot : observed_.aways.ListDue(due_)) {
    observed_.aways.Set(slot, absl::InfiniteFuture());
    observed_.members[slot].away = true;
    observed_.SetAllDue();
    reasons_.push_back(absl::StrCat(
        "island ", state_.members()[slot].record.island_id(),
        " is away: it has no plan stream; rounds do not wait for it"));
  }
}

void RunMachine::ExpirePins() {
  std::vector<std::string> expired;
  for (const auto& [pin_id, end] : observed_.pin_ends) {
    if (end <= due_) expired.push_back(pin_id);
  }
  for (const std::string& pin_id : expired) EmitRelease(pin_id);
}

void RunMachine::AdvanceSealed() {
  for (int32_t f = 0; f < state_.fragments().size() && !IsFull(); ++f) {
    if (state_.fragments()[f].phase != RoundPhase::kSealed) continue;
    if (!IsDue(f)) {
      Wait(observed_.decisions[f].waits_for);
      continue;
    }
    Decision decision = DecideRecall(state_, observed_, f, due_);
    if (decision.reason.empty()) {
      decision = WaitsForVerdict(state_, f)
                     ? DecideVerdict(state_, observed_, f)
                     : DecideCommit(state_, observed_, f);
    }
    if (decision.records.empty()) {
      Wait(decision.reason);
      observed_.decisions[f].waits_for = std::move(decision.reason);
      continue;
    }
    const v1::Seal seal = state_.fragments()[f].sealed.seal();
    const v1::OpenRound open = state_.fragments()[f].open;
    EmitAll(std::move(decision));
    if (state_.fragments()[f].newest.version() == seal.version() + 1) {
      NoteMerged(state_, open, seal, observed_);
      if (f + 1 == state_.fragments().size()) {
        for (const v1::SealedContribution& merged : seal.contributions()) {
          observed_.members[merged.key().slot()].ClearSteps();
        }
      }
      NoteHeld(f);
      PauseOnGuard();
      KeepCheckpoint(f);
      CompleteIfDone();
    }
    if (state_.ended()) return;
  }
}

void RunMachine::AdvanceOpen() {
  const bool is_async = IsAsync(state_.spec().schedule());
  bool is_any_due = false;
  for (int32_t f = 0; f < state_.fragments().size(); ++f) {
    FragmentDecision& last = observed_.decisions[f];
    is_any_due |= IsDue(f);
    if (state_.fragments()[f].phase != RoundPhase::kOpen) continue;
    if (!IsDue(f)) {
      Wait(last.waits_for);
      continue;
    }
    last.reads_speeds = true;
    Decision decision =
        is_async ? DecideAsyncSeal(state_, observed_, f, due_,
                                   observed_.timers[f])
                 : DecideSeal(state_, observed_, f, now_, due_,
                              observed_.timers[f], &last.reads_speeds);
    if (decision.records.empty()) {
      Wait(decision.reason);
      last.waits_for = std::move(decision.reason);
      continue;
    }
    is_any_due = true;
    EmitAll(std::move(decision));
    if (state_.state() != v1::RUN_STATE_ACTIVE || IsFull()) return;
  }
  if (!is_any_due) return Wait(open_waits_for_);
  open_waits_for_.clear();
  if (state_.just_restored()) {
    for (size_t shard = 0; shard < observed_.shards.size(); ++shard) {
      if (observed_.shards[shard].reported) continue;
      open_waits_for_ = absl::StrCat(
          "was restored to ", state_.restores().back().pin_id(),
          "; waits for shard ", shard, " on ", state_.server_ids()[shard],
          " to go back to it");
      return Wait(open_waits_for_);
    }
  }
  Decision decision = is_async ? DecideAsyncOpen(state_, observed_, due_)
                               : DecideOpen(state_, observed_, due_);
  if (decision.records.empty()) {
    Wait(decision.reason);
    open_waits_for_ = std::move(decision.reason);
    return;
  }
  for (const storage::v1::Record& record : decision.records) {
    observed_.timers[record.round_opened().fragment()] = RoundTimers();
    observed_.timers[record.round_opened().fragment()].deadline_start = now_;
    NotePlans(state_, record.round_opened(), now_, observed_);
    NoteAsked(state_, record.round_opened(), now_, observed_);
  }
  EmitAll(std::move(decision));
}

void RunMachine::NoteHeld(int32_t committed) {
  const storage::v1::FragmentGuard& guard =
      state_.fragments()[committed].guard;
  if (guard.held_count() > 0 && guard.inside_count() == 0) {
    reasons_.push_back(guard.reason());
  }
}

void RunMachine::KeepCheckpoint(int32_t committed) {
  const int64_t every = state_.spec().checkpoint_every_round_count();
  const int64_t version = state_.fragments()[0].newest.version();
  if (every == 0 || IsAtEnd(state_, 0)) return;
  // Fragments of an async or streaming run are rarely at one version. A commit
  // of fragment 0 makes the cut.
  const v1::ScheduleSpec& schedule = state_.spec().schedule();
  const bool apart = IsAsync(schedule) || IsStreaming(schedule);
  if (apart && committed != 0) return;
  for (const FragmentState& fragment : state_.fragments()) {
    if (!apart && fragment.newest.version() != version) return;
  }
  // A checkpoint that the guard held back is made later.
  int64_t newest = 0;
  for (const KnownCheckpoint& one : ListCheckpoints()) {
    const v1::Pin& pin = state_.pins().at(one.pin_id).pin_set().pin();
    newest = std::max(newest, pin.cut(0).version());
  }
  if (newest >= version / every * every) return;
  const storage::v1::FragmentGuard* const held = state_.FindHeld();
  if (held != nullptr && held->held_count() <= kHeldCommitsMax) {
    return reasons_.push_back(absl::StrCat("makes no checkpoint at round ",
                                           version, ": ", held->reason()));
  }
  v1::Pin pin = MakePin(absl::StrCat("round-", version), /*checkpoint=*/true);
  pin.set_suspect(held != nullptr);
  EmitPin(pin, absl::ZeroDuration());
  for (const std::string& pin_id :
       ListExpired(ListCheckpoints(), state_.spec().checkpoint().keep_count(),
                   now_)) {
    EmitRelease(pin_id);
  }
}

std::vector<KnownCheckpoint> RunMachine::ListCheckpoints() const {
  std::vector<KnownCheckpoint> known;
  for (const auto& [pin_id, state] : state_.pins()) {
    const v1::Pin& pin = state.pin_set().pin();
    if (!pin.checkpoint() || pin_id == "final") continue;
    known.push_back({pin_id, pin.commit_seq(), FromProto(state.create_time()),
                     pin.suspect()});
  }
  return known;
}

void RunMachine::SetSuspect(bool suspect, int64_t version_min) {
  std::vector<storage::v1::PinSet> changed;
  for (const auto& [pin_id, state] : state_.pins()) {
    const v1::Pin& pin = state.pin_set().pin();
    if (pin.checkpoint() && pin.suspect() != suspect && pin.cut_size() > 0 &&
        pin.cut(0).version() >= version_min) {
      changed.push_back(state.pin_set());
    }
  }
  for (storage::v1::PinSet& one : changed) {
    one.mutable_pin()->set_suspect(suspect);
    storage::v1::Record record;
    *record.mutable_pin_set() = std::move(one);
    Emit(std::move(record));
  }
}

void RunMachine::CompleteIfDone() {
  for (int32_t f = 0; f < state_.fragments().size(); ++f) {
    if (!IsAtEnd(state_, f)) return;
  }
  if (PausesOnGuard()) return;
  // After a restore to it, it is there.
  if (!state_.pins().contains("final")) {
    v1::Pin pin = MakePin("final", /*checkpoint=*/true);
    pin.set_suspect(state_.FindHeld() != nullptr);
    EmitPin(pin, absl::ZeroDuration());
  }
  Emit(MakeStateRecord(v1::RUN_STATE_COMPLETED, EndReason(state_)));
  reasons_.push_back("is complete");
}

void RunMachine::AddStall(absl::Duration duration) {
  observed_.leases.Delay(duration);
  observed_.aways.Delay(duration);
  other_timer_.reset();
  for (ObservedMember& member : observed_.members) {
    member.idle_since += duration;
  }
  for (auto& [pin_id, end] : observed_.pin_ends) end += duration;
  for (RoundTimers& timers : observed_.timers) {
    timers.deadline_start += duration;
    timers.quorum_time += duration;
    for (absl::Time& time : timers.wait.received_times) time += duration;
  }
  for (auto& [place, recall] : observed_.recalls) recall.since += duration;
  recall_timer_ += duration;
  observed_.SetAllDue();
}

absl::Time RunMachine::NextTimer() const {
  if (!refusal_.ok()) return absl::InfiniteFuture();
  if (is_cut_) return now_;
  if (!other_timer_.has_value()) other_timer_ = FindOtherTimer();
  if (state_.ended()) return *other_timer_;
  return std::min({*other_timer_, observed_.leases.Earliest(),
                   observed_.aways.Earliest()});
}

absl::Time RunMachine::FindOtherTimer() const {
  absl::Time next = absl::InfiniteFuture();
  for (const auto& [pin_id, end] : observed_.pin_ends)
    next = std::min(next, end);
  if (state_.ended()) return next;
  next = std::min(next, recall_timer_);
  if (state_.state() != v1::RUN_STATE_ACTIVE) return next;
  next = std::min(next, sit_out_timer_);
  for (int32_t f = 0; f < state_.fragments().size(); ++f) {
    if (state_.fragments()[f].phase == RoundPhase::kOpen) {
      next = std::min(next, SealTimer(state_, f, observed_.timers[f]));
    }
  }
  return next;
}

}  // namespace atl::coordinator
