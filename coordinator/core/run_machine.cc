// Events of a run and their records. run_machine_advance.cc: what follows.

#include "coordinator/core/run_machine.h"

#include <set>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/features/features.h"
#include "base/layout/ids.h"
#include "base/layout/run_timing.h"
#include "base/status/check.h"
#include "base/status/cut_utf8.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "coordinator/core/outputs/plans.h"
#include "coordinator/core/rounds/contributions.h"
#include "coordinator/core/rounds/data_lease.h"
#include "coordinator/core/rounds/index_updates.h"
#include "coordinator/core/rounds/slot_plans.h"
#include "coordinator/core/slot_reuse.h"
#include "coordinator/core/spec/island_requests.h"
#include "coordinator/core/spec/validate_spec.h"
#include "coordinator/core/state/guard.h"

namespace atl::coordinator {
namespace {

// A restarted island skips this many seqs, or one per fragment if that is more.
// So an unreported contribution of its earlier life keeps its key.
constexpr int64_t kSeqGapMin = 16;
constexpr size_t kHindranceBytesMax = 256;
// Longest kept IslandLeave.reason.
constexpr size_t kLeaveReasonBytesMax = 256;
// Longest kept HeartbeatRequest.phase_reason.
constexpr size_t kPhaseReasonBytesMax = 256;
// Longest kept Evaluation.failure.
constexpr size_t kFailureBytesMax = 256;

std::string HashSecret(const std::string& secret) {
  const codec::Sha256Digest digest = codec::ComputeSha256(secret);
  return std::string(reinterpret_cast<const char*>(digest.data()),
                     digest.size());
}

// Stands for the report of a shard that holds another run with this run_id.
v1::ShardReport OtherRunReport(const v1::ShardReport& report,
                               const RunState& state) {
  v1::ShardReport other;
  other.set_run_id(state.run_id());
  other.set_run_uid(state.run_uid());
  other.set_run_epoch(state.run_epoch());
  other.set_shard(report.shard());
  v1::Fault& fault = *other.mutable_fault_detail();
  fault.set_code("OTHER_RUN");
  fault.set_expected(absl::StrCat("run_uid ", state.run_uid()));
  fault.set_found(absl::StrCat("run_uid ", report.run_uid(), " on server ",
                               state.server_ids()[report.shard()]));
  other.set_fault(absl::StrCat("its data directory holds another run with the "
                               "id ",
                               state.run_id(), ": expected ", fault.expected(),
                               ", found ", report.run_uid()));
  return other;
}

}  // namespace

absl::Duration IslandLeaseDuration(const v1::RunSpec& spec) {
  const absl::Duration lease = FromProto(spec.schedule().lease_duration());
  return lease > absl::ZeroDuration() ? lease : absl::Seconds(30);
}

absl::StatusOr<RunAnswer> RunMachine::Step(const RunEvent& event,
                                           absl::Time now) {
  if (on_step_) on_step_();
  SetNow(now);
  RunAnswer answer;
  const int64_t revision = state_.revision();
  const bool is_tick = std::holds_alternative<event::Tick>(event);
  // These decide nothing, unless they make a record.
  const bool is_report = std::holds_alternative<event::Heartbeat>(event) ||
                         std::holds_alternative<event::PlanStream>(event) ||
                         std::holds_alternative<event::Progress>(event);
  if (!is_report) {
    unsettled_ = true;
    other_timer_.reset();
  }
  if (!refusal_.ok()) {
    RETURN_IF_ERROR(TakeFrozen(event, answer));
    return answer;
  }
  RETURN_IF_ERROR(
      std::visit([&](const auto& one) { return Take(one, answer); }, event));
  if (is_tick) {
    unsettled_ = observed_.IsAnyDue();
  } else if (state_.revision() != revision) {
    unsettled_ = true;
    other_timer_.reset();
  }
  return answer;
}

absl::Status RunMachine::Take(const event::Tick& tick, RunAnswer& answer) {
  due_ = now_;
  SetDueByTime();
  Advance();
  return absl::OkStatus();
}

absl::Status RunMachine::Take(const event::Create& create, RunAnswer& answer) {
  storage::v1::Record record;
  record.mutable_run_created()->set_run_id(create.run_id);
  *record.mutable_run_created()->mutable_spec() = create.spec;
  record.mutable_run_created()->set_run_epoch(1);
  record.mutable_run_created()->set_run_uid(create.run_uid);
  due_ = now_;
  Emit(std::move(record));
  reasons_.push_back("was created");
  Advance();
  return absl::OkStatus();
}

absl::Status RunMachine::Take(const event::Adopt& adopt, RunAnswer& answer) {
  storage::v1::Record record;
  *record.mutable_run_created() = adopt.created;
  record.set_revision(1);
  *record.mutable_time() = ToProto(now_);
  const absl::Status fits = RunState().Apply(record);
  if (!fits.ok()) return absl::InvalidArgumentError(fits.message());
  due_ = now_;
  Emit(std::move(record));
  const v1::Restore& restore = state_.restores().back();
  reasons_.push_back(absl::StrCat(
      "continues from ", restore.pin_id(), " in the mirror, before commit ",
      restore.cut_commit_seq(), ", with run_epoch ", restore.run_epoch()));
  Advance();
  return absl::OkStatus();
}

absl::Status RunMachine::Restore(const storage::v1::RunSnapshot& snapshot,
                                 int64_t revision, absl::Time time) {
  RETURN_IF_ERROR(state_.Restore(snapshot, revision));
  SetNow(time);
  return absl::OkStatus();
}

absl::Status RunMachine::Replay(const storage::v1::Record& record) {
  RETURN_IF_ERROR(state_.Apply(record));
  SetNow(FromProto(record.time()));
  return absl::OkStatus();
}

absl::Status RunMachine::Take(const event::Recovered& recovered,
                              RunAnswer& answer) {
  due_ = now_;
  ResizeObservations();
  TakeSealed(state_, observed_);
  for (const Member& member : state_.members()) {
    if (!member.present()) continue;
    ObservedMember& seen = observed_.members[member.record.slot()];
    observed_.leases.Set(member.record.slot(),
                         now_ + IslandLeaseDuration(state_.spec()));
    if (!member.ready()) seen.idle_since = now_;
    AwaitStream(member, kReconnectGrace);
  }
  for (const FragmentState& fragment : state_.fragments()) {
    if (fragment.phase == RoundPhase::kIdle) continue;
    NoteAsked(state_, fragment.open, now_, observed_);
  }
  for (const auto& [pin_id, pin] : state_.pins()) {
    if (!pin.pin_set().pin().checkpoint()) {
      observed_.pin_ends[pin_id] =
          now_ + FromProto(pin.pin_set().lease_duration());
    }
  }
  Advance();
  return absl::OkStatus();
}

void RunMachine::ResizeObservations() {
  coordinator::ResizeObservations(state_, observed_);
}

absl::Status RunMachine::CheckNotEnded() const {
  if (!state_.ended()) return absl::OkStatus();
  return Refuse(absl::StatusCode::kFailedPrecondition, "RUN_ENDED",
                absl::StrCat("run ", state_.run_id(), " has ended: ",
                             state_.state() == v1::RUN_STATE_COMPLETED
                                 ? "it is complete"
                                 : "it was cancelled"));
}

absl::Status RunMachine::CheckIsland(const IslandCredentials& island) const {
  if (!refusal_.ok()) return refusal_;
  const Member* member = state_.FindMember(island.island_id);
  if (member == nullptr) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "NOT_A_MEMBER",
        absl::StrCat("island ", island.island_id, " is not a member of run ",
                     state_.run_id(), ": Join first"));
  }
  if (member->record.session_sha256().empty()) {
    // Its epoch has jumped, so it would look like another process's.
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "NOT_A_MEMBER",
        absl::StrCat("the session of island ", island.island_id,
                     " was lost with the coordinator's log: Join first"));
  }
  const int64_t newest = member->record.island_epoch();
  if (island.island_epoch < newest) {
    return Refuse(
        absl::StatusCode::kAborted, "STALE_ISLAND_EPOCH",
        absl::StrCat("island ", island.island_id,
                     " has joined again since: epoch ", island.island_epoch,
                     " is not the newest, ", newest));
  }
  if (island.island_epoch > newest) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "NOT_A_MEMBER",
        absl::StrCat("island ", island.island_id, " was never given epoch ",
                     island.island_epoch, ": Join first"));
  }
  // Compares hashes, so that timing reveals nothing about the secret.
  if (HashSecret(island.session_secret) != member->record.session_sha256()) {
    return Refuse(absl::StatusCode::kUnauthenticated, "WRONG_SESSION",
                  "the metadata atoll-session does not hold the secret that "
                  "Join gave to this island");
  }
  if (!member->present()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "LEASE_ENDED",
                  absl::StrCat("the membership of island ", island.island_id,
                               " has ended: Join again"));
  }
  return absl::OkStatus();
}

absl::Status RunMachine::CountCall(const std::string& island_id,
                                   TokenBucket& rate) {
  const absl::Duration wait = rate.Take(1, now_) - now_;
  if (wait <= absl::ZeroDuration()) return absl::OkStatus();
  rate.GiveBack(1);
  ++observed_.refused_call_count;
  return RefuseForNow(
      absl::StatusCode::kResourceExhausted, "TOO_MANY_CALLS",
      absl::StrCat("island ", island_id,
                   " joins or reports too often: call again in ",
                   absl::FormatDuration(wait)),
      wait);
}

absl::Status RunMachine::CheckReport(const IslandCredentials& island) {
  RETURN_IF_ERROR(CheckIsland(island));
  const int32_t slot = state_.FindMember(island.island_id)->record.slot();
  return CountCall(island.island_id, observed_.members[slot].reports);
}

void RunMachine::Touch(const std::string& island_id) {
  const int32_t slot = state_.FindMember(island_id)->record.slot();
  observed_.members[slot].last_heard = now_;
  observed_.leases.Set(slot, now_ + IslandLeaseDuration(state_.spec()));
}

void RunMachine::SetNotAway(int32_t slot) {
  observed_.aways.Set(slot, absl::InfiniteFuture());
  if (!std::exchange(observed_.members[slot].away, false)) return;
  observed_.SetAllDue();
  unsettled_ = true;
  other_timer_.reset();
}

void RunMachine::AwaitStream(const Member& member, absl::Duration grace) {
  const v1::ScheduleSpec& schedule = state_.spec().schedule();
  const uint64_t features = member.record.capabilities().features();
  const int32_t slot = member.record.slot();
  if (schedule.timing() == v1::TIMING_ELASTIC && !IsAsync(schedule) &&
      (PeerFeatures(features) & kReportingHeartbeat) != 0 &&
      !observed_.members[slot].away) {
    observed_.aways.Set(slot, now_ + grace);
  }
}

int64_t RunMachine::SeqSeen(int32_t slot) const {
  // A greater seq was refused, or a shard lies.
  const int64_t seq_max = FindSeqMax(state_.members()[slot]);
  int64_t seq = state_.outcomes().SeqMax(slot, seq_max);
  const auto see = [&](const v1::ContributionKey& key) {
    if (key.slot() == slot && key.seq() <= seq_max) {
      seq = std::max(seq, key.seq());
    }
  };
  seq = std::max(seq, observed_.index.SeqMax(slot, seq_max));
  for (const FragmentState& fragment : state_.fragments()) {
    for (const auto& sealed : fragment.sealed.seal().contributions()) {
      see(sealed.key());
    }
  }
  return seq;
}

absl::StatusOr<storage::v1::MemberSet> RunMachine::MakeMember() const {
  storage::v1::MemberSet member;
  const v1::RunSpec& spec = state_.spec();
  // The run may be older than the bound.
  const int32_t islands_max =
      std::max(IslandsMax(spec.layout().fragment_count()),
               spec.schedule().island_count_min());
  if (static_cast<int64_t>(state_.members().size()) < islands_max) {
    member.set_slot(static_cast<int32_t>(state_.members().size()));
    return member;
  }
  const absl::Duration absent_min = kGoneLeases * IslandLeaseDuration(spec);
  const std::optional<int32_t> slot =
      FindReusableSlot(state_, observed_, now_, absent_min);
  if (!slot.has_value()) {
    return RefuseForNow(
        absl::StatusCode::kResourceExhausted, "RUN_FULL",
        absl::StrCat("the run has ", islands_max,
                     " islands, the most that one of ",
                     state_.fragments().size(),
                     " fragments can have; the slot of one that left or was "
                     "lost is free ",
                     absl::FormatDuration(absent_min), " later"),
        IslandLeaseDuration(spec));
  }
  // The slot's seqs and epochs continue: no key and no session is used twice.
  const storage::v1::MemberSet& gone = state_.members()[*slot].record;
  member.set_slot(*slot);
  member.set_island_epoch(gone.island_epoch());
  member.set_next_seq(gone.next_seq());
  return member;
}

std::optional<int32_t> RunMachine::TakeDataShard(const std::string& island_id,
                                                 int32_t slot,
                                                 const ObservedMember* old,
                                                 const std::string& token_id) {
  const std::optional<Yield> yield =
      FindYield(state_, observed_, slot, old, token_id, now_);
  if (!yield.has_value()) return std::nullopt;
  storage::v1::MemberSet lost = state_.members()[yield->slot].record;
  lost.set_state(v1::ISLAND_STATE_LOST);
  const int32_t data_shard = lost.data_shard();
  reasons_.push_back(absl::StrCat("island ", lost.island_id(),
                                  " yields data shard ", data_shard, " to ",
                                  island_id, ": ", yield->reason));
  EmitMember(std::move(lost));
  return data_shard;
}

absl::Status RunMachine::Take(const event::Join& join, RunAnswer& answer) {
  const v1::JoinRequest& request = join.request;
  RETURN_IF_ERROR(CheckId("island_id", request.island_id()));
  RETURN_IF_ERROR(CheckCapabilities(request.capabilities()));
  RETURN_IF_ERROR(CheckNotEnded());
  RETURN_IF_ERROR(CheckJoin(request));
  const v1::DataSpec& data = state_.spec().data();
  const Member* old = state_.FindMember(request.island_id());
  if (old != nullptr && old->removed()) {
    return Refuse(
        absl::StatusCode::kPermissionDenied, "ISLAND_REMOVED",
        absl::StrCat("an operator removed island ", request.island_id(),
                     " from run ", state_.run_id(),
                     "; `atoll island readmit ", state_.run_id(), " ",
                     request.island_id(), "` lets it join again"));
  }
  storage::v1::MemberSet member;
  if (old != nullptr) {
    member = old->record;
  } else {
    ASSIGN_OR_RETURN(member, MakeMember());
  }
  std::set<int32_t> leased;
  if (!data.fingerprint().empty()) {
    for (const Member& other : state_.members()) {
      if (other.present() && other.record.slot() != member.slot()) {
        leased.insert(other.record.data_shard());
      }
    }
  }
  ObservedMember* const seen =
      old != nullptr ? &observed_.members[member.slot()] : nullptr;
  if (seen != nullptr) {
    RETURN_IF_ERROR(CountCall(request.island_id(), seen->joins));
    NoteJoin(*old, kGoneLeases * IslandLeaseDuration(state_.spec()), now_,
             *seen);
  }
  std::optional<int32_t> data_shard =
      ChooseDataShard(member.slot(), old != nullptr ? member.data_shard() : -1,
                      leased, data.data_shard_count());
  if (!data_shard.has_value()) {
    data_shard = TakeDataShard(request.island_id(), member.slot(), seen,
                               join.token_id);
  }
  if (!data_shard.has_value()) {
    return RefuseForNow(absl::StatusCode::kResourceExhausted, "NO_DATA_SHARD",
                        absl::StrCat("all ", data.data_shard_count(),
                                     " data shards are read by other islands"),
                        IslandLeaseDuration(state_.spec()));
  }
  // A strict run keeps its members over restarts: a ready one stays expected.
  const bool stays_ready =
      old != nullptr && old->ready() &&
      state_.spec().schedule().timing() == v1::TIMING_STRICT;
  const int64_t next_seq =
      member.island_epoch() == 0
          ? 1
          : std::max(SeqSeen(member.slot()), member.next_seq()) +
                std::max(kSeqGapMin,
                         static_cast<int64_t>(state_.fragments().size()));
  member.set_island_id(request.island_id());
  member.set_island_epoch(member.island_epoch() + 1);
  member.set_session_sha256(HashSecret(join.session_secret));
  member.set_state(stays_ready ? v1::ISLAND_STATE_READY
                               : v1::ISLAND_STATE_JOINING);
  *member.mutable_capabilities() = request.capabilities();
  member.set_data_shard(*data_shard);
  member.set_next_seq(next_seq);
  member.set_token_id(join.token_id);
  member.set_weight_share_max(join.weight_share_max);
  const bool is_new = old == nullptr;
  EmitMember(member);  // Moves the members.
  if (is_new) {
    observed_.members[member.slot()] = ObservedMember();
    observed_.members[member.slot()].idle_since = now_;
    observed_.members[member.slot()].joins.Take(1, now_);
  }
  reasons_.push_back(absl::StrCat("island ", member.island_id(),
                                  " joined as slot ", member.slot(), ", epoch ",
                                  member.island_epoch()));
  Touch(member.island_id());
  SetNotAway(member.slot());
  AwaitStream(state_.members()[member.slot()], kStreamGrace);
  ObservedMember& joined = observed_.members[member.slot()];
  joined.acknowledged_seq = 0;
  joined.phase = v1::ISLAND_PHASE_UNSPECIFIED;
  joined.phase_reason.clear();
  Advance();

  v1::JoinResponse& response = answer.joined;
  response.set_island_epoch(member.island_epoch());
  response.set_slot(member.slot());
  response.set_session_secret(join.session_secret);
  response.set_next_seq(next_seq);
  for (const FragmentState& fragment : state_.fragments()) {
    for (const auto& [place, seen] :
         observed_.index.Seen(fragment.newest.fragment())) {
      if (place.first == member.slot() && seen.info != nullptr) {
        *response.add_open_contributions() = *seen.info;
      }
    }
  }
  for (v1::ContributionOutcome& outcome :
       state_.outcomes().Newest(member.slot())) {
    *response.add_outcomes() = std::move(outcome);
  }
  response.set_data_shard(*data_shard);
  response.set_data_position(state_.DataPosition(*data_shard, member.slot()));
  *response.mutable_lease_duration() =
      ToProto(IslandLeaseDuration(state_.spec()));
  response.set_coordinator_features(ProgramFeatures());
  return absl::OkStatus();
}

absl::Status RunMachine::Take(const event::Heartbeat& heartbeat,
                              RunAnswer& answer) {
  const IslandCredentials& island = heartbeat.island;
  RETURN_IF_ERROR(CheckIsland(island));
  Touch(island.island_id);
  if (heartbeat.request == nullptr) return absl::OkStatus();
  const v1::HeartbeatRequest& request = *heartbeat.request;
  const Member& member = *state_.FindMember(island.island_id);
  const int32_t slot = member.record.slot();
  ObservedMember& observed = observed_.members[slot];
  observed.phase = v1::IslandPhase_IsValid(request.phase())
                       ? request.phase()
                       : v1::ISLAND_PHASE_UNSPECIFIED;
  observed.phase_reason =
      std::string(CutUtf8(request.phase_reason(), kPhaseReasonBytesMax));
  // A claim of outcomes that do not exist yet would leave out later ones.
  if (request.acknowledged_seq() >= 0) {
    observed.acknowledged_seq =
        request.acknowledged_seq() <= observed.acknowledged_seq
            ? request.acknowledged_seq()
            : std::min(request.acknowledged_seq(),
                       state_.outcomes().SeqMax(slot, FindSeqMax(member)));
  }
  if (request.has_progress()) {
    RETURN_IF_ERROR(CountCall(island.island_id, observed.reports));
  }
  RETURN_IF_ERROR(CheckHeartbeat(request));
  if (!request.has_progress()) return absl::OkStatus();
  TakeProgress(island.island_id, request.progress());
  return absl::OkStatus();
}

absl::Status RunMachine::Take(const event::PlanStream& stream,
                              RunAnswer& answer) {
  const IslandCredentials& island = stream.island;
  const absl::Status status = CheckIsland(island);
  if (!stream.has_begun && !status.ok()) return absl::OkStatus();
  RETURN_IF_ERROR(status);
  const Member& member = *state_.FindMember(island.island_id);
  const int32_t slot = member.record.slot();
  if (stream.has_begun) {
    Touch(island.island_id);
    if (!observed_.members[slot].away) {
      observed_.aways.Set(slot, absl::InfiniteFuture());
      return absl::OkStatus();
    }
    // The next Tick decides, once for all that come back together.
    SetNotAway(slot);
    reasons_.push_back(absl::StrCat("island ", island.island_id, " is back"));
    return absl::OkStatus();
  }
  AwaitStream(member, kStreamGrace);
  return absl::OkStatus();
}

absl::Status RunMachine::Take(const event::Ready& ready, RunAnswer& answer) {
  const IslandCredentials& island = ready.island;
  const int64_t commit_seq = ready.commit_seq;
  RETURN_IF_ERROR(CheckReport(island));
  Touch(island.island_id);
  if (commit_seq < 0 || commit_seq > state_.commit_seq()) {
    return Refuse(absl::StatusCode::kInvalidArgument, "NO_SUCH_CUT",
                  absl::StrCat("there is no cut ", commit_seq,
                               " yet; the newest is ", state_.commit_seq()));
  }
  if (!state_.started()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_STARTED",
                  "the run has no version 0 that an island could hold");
  }
  // An island that holds a smaller cut would push against versions that are no
  // longer there.
  if (!state_.restores().empty() &&
      commit_seq < state_.restores().back().commit_seq()) {
    return Refuse(
        absl::StatusCode::kFailedPrecondition, "CUT_SUPERSEDED",
        absl::StrCat("the run was restored to ",
                     state_.restores().back().pin_id(), " as number ",
                     state_.restores().back().commit_seq(), ", and the cut ",
                     commit_seq, " that the island holds is older: pull the "
                     "newest one"));
  }
  const Member* member = state_.FindMember(island.island_id);
  if (!member->ready() && !state_.ended()) {
    storage::v1::MemberSet record = member->record;
    // Late reports were of steps that the restore took out of the past.
    if (!state_.restores().empty()) {
      observed_.members[record.slot()].ClearSteps();
    }
    record.set_state(v1::ISLAND_STATE_READY);
    NoteReady(now_, observed_.members[record.slot()]);
    EmitMember(std::move(record));
    reasons_.push_back(absl::StrCat("island ", island.island_id, " is ready"));
  }
  Advance();
  return absl::OkStatus();
}

absl::Status RunMachine::Take(const event::Progress& progress,
                              RunAnswer& answer) {
  const IslandCredentials& island = progress.island;
  const v1::ReportProgressRequest& request = progress.request;
  RETURN_IF_ERROR(CheckProgress(request));
  RETURN_IF_ERROR(CheckReport(island));
  Touch(island.island_id);
  TakeProgress(island.island_id, request);
  return absl::OkStatus();
}

void RunMachine::TakeProgress(const std::string& island_id,
                              const v1::ReportProgressRequest& request) {
  const int32_t slot = state_.FindMember(island_id)->record.slot();
  ObservedMember& observed = observed_.members[slot];
  if (NoteClaim(state_, slot, request.tokens_per_second(), observed_)) {
    unsettled_ = true;
  }
  // A change that comes too soon is not taken: the next reports have it too.
  if (!observed_.sample_readers.Has(slot, request.index_digest())) {
    if (observed.sample_changes.Take(1, now_) <= now_) {
      SetSamples(slot, request.index_digest());
    } else {
      observed.sample_changes.GiveBack(1);
    }
  }
  observed.loss_sum +=
      request.loss() * static_cast<double>(request.loss_step_count());
  observed.metrics.AddAll(request.metrics(), request.metrics_token_count());
  observed.loss_step_count = std::min(
      kProgressCountMax, observed.loss_step_count + request.loss_step_count());
  if (request.loss_step_count() == 0 && observed.progress.has_value()) {
    const double loss = observed.progress->loss();
    const int64_t count = observed.progress->loss_step_count();
    const auto metrics = observed.progress->metrics();
    observed.progress = request;
    observed.progress->set_loss(loss);
    observed.progress->set_loss_step_count(count);
    if (request.metrics().empty()) {
      *observed.progress->mutable_metrics() = metrics;
    }
  } else {
    observed.progress = request;
  }
  observed.progress->clear_evaluations();
  observed.progress->clear_sync_phases();
  observed.progress->clear_unpushed();
  std::string& hindrance = *observed.progress->mutable_hindrance();
  hindrance.resize(CutUtf8(hindrance, kHindranceBytesMax).size());
  EmitUnpushed(slot, request);
  const int64_t seq_max = FindSeqMax(*state_.FindMember(island_id));
  for (const v1::SyncPhases& sync : request.sync_phases()) {
    if (sync.seq() <= seq_max && observed.phases.Add(sync)) {
      phases_.push_back(sync);
    }
  }
  for (const v1::Evaluation& evaluation : request.evaluations()) {
    const int64_t newest =
        state_.fragments().empty() ? 0 : state_.fragments()[0].newest.version();
    if (evaluation.version() > newest ||
        evaluation.commit_seq() > state_.commit_seq() ||
        IsSuperseded(state_.restores(), evaluation.commit_seq()) ||
        state_.IsEvaluated(evaluation.version()) ||
        !state_.IsAskedToEvaluate(*state_.FindMember(island_id),
                                  evaluation.version())) {
      continue;
    }
    storage::v1::Record record;
    v1::Evaluation& kept = *record.mutable_evaluated()->mutable_evaluation();
    kept = evaluation;
    kept.set_island_id(island_id);
    std::string& failure = *kept.mutable_failure();
    failure.resize(CutUtf8(failure, kFailureBytesMax).size());
    // An island with a token can claim any loss: that must not stop the run.
    kept.clear_outside_band();
    if (state_.IsEvaluationTrusted(kept)) {
      kept.set_outside_band(FindEvaluationDamage(
          state_.ListLossesBy(island_id), evaluation.loss()));
    }
    const bool is_outside = !kept.outside_band().empty();
    Emit(std::move(record));
    if (!is_outside) continue;
    reasons_.push_back(state_.fragments()[0].guard.reason());
    SetSuspect(/*suspect=*/true, evaluation.version());
    PauseOnGuard();
  }
}

void RunMachine::EmitUnpushed(int32_t slot,
                              const v1::ReportProgressRequest& request) {
  if (request.unpushed().empty()) return;
  storage::v1::Record record;
  storage::v1::WorkUnpushed& body = *record.mutable_work_unpushed();
  body.set_slot(slot);
  // A part of it may have been told before.
  Member counted = state_.members()[slot];
  for (const v1::UnpushedWork& work : request.unpushed()) {
    if (!state_.IsUncounted(counted, work)) continue;
    counted.KeepUnpushed(work);
    *body.add_work() = work;
  }
  if (body.work().empty()) return;
  Emit(std::move(record));
}

absl::Status RunMachine::Take(const event::Leave& leave, RunAnswer& answer) {
  const IslandCredentials& island = leave.island;
  RETURN_IF_ERROR(CheckLeave(leave.request));
  // Has no rate: each needs a join before, and an island that leaves does not
  // ask again.
  const absl::Status status = CheckIsland(island);
  if (absl::IsFailedPrecondition(status)) return absl::OkStatus();
  RETURN_IF_ERROR(status);
  if (state_.ended()) return absl::OkStatus();
  storage::v1::MemberSet member = state_.FindMember(island.island_id)->record;
  member.set_state(v1::ISLAND_STATE_LEFT);
  v1::IslandLeave& told = *member.mutable_leave();
  told.set_reason(
      std::string(CutUtf8(leave.request.reason(), kLeaveReasonBytesMax)));
  told.set_step(leave.request.step());
  if (leave.request.has_loss()) told.set_loss(leave.request.loss());
  reasons_.push_back(absl::StrCat("island ", island.island_id, " left",
                                  told.reason().empty() ? "" : ": ",
                                  told.reason()));
  EmitMember(std::move(member));
  Advance();
  return absl::OkStatus();
}

absl::Status RunMachine::Take(const event::ShardReported& reported,
                              RunAnswer& answer) {
  const int32_t number = reported.report.shard();
  if (number < 0 || number >= state_.server_ids().size() ||
      state_.server_ids()[number] != reported.server_id) {
    return absl::OkStatus();
  }
  ObservedShard& shard = observed_.shards[number];
  const bool is_other = !reported.report.run_uid().empty() &&
                        reported.report.run_uid() != state_.run_uid();
  // A shard that has reported this run may hold files of an older run too.
  if (is_other && shard.reported &&
      shard.report.fault_detail().code() != "OTHER_RUN") {
    return absl::OkStatus();
  }
  v1::ShardReport other;
  if (is_other) other = OtherRunReport(reported.report, state_);
  v1::ShardReport& report = is_other ? other : reported.report;
  if (!is_other && report.base_report_seq() != 0 &&
      reported.report_seq == shard.report_seq &&
      report.base_report_seq() == shard.report.base_report_seq()) {
    return absl::OkStatus();  // A repeat.
  }
  if (report.run_epoch() != state_.run_epoch() ||
      !CanTake(shard, reported.report_seq, report)) {
    answer.wants_whole_report = report.base_report_seq() != 0;
    return absl::OkStatus();
  }
  const bool was_reported = shard.reported;
  const bool had_let_go = HasLetGo(shard);
  const int64_t persisted = shard.report.persisted_commit_seq();
  const ReportDifference difference =
      TakeReport(state_, number, is_other ? 0 : reported.report_seq, report,
                 observed_);
  // A refusal changes what other shards may expect in the SEAL. An ended run's
  // plan names its leftover contributions in parts.
  if (!was_reported || shard.report.persisted_commit_seq() != persisted ||
      difference.refusals ||
      (state_.ended() &&
       (difference.contributions || HasLetGo(shard) != had_let_go))) {
    plan_change_.servers = true;
  }
  // A report may hold any number.
  shard.acknowledged_commit_seq = std::max(
      shard.acknowledged_commit_seq,
      std::min(shard.report.persisted_commit_seq(), state_.commit_seq()));
  mirror_due_ |= FindMirrorDue() != nullptr;
  Advance();
  return absl::OkStatus();
}

absl::Status RunMachine::Take(const event::ServerChanged& changed,
                              RunAnswer& answer) {
  for (size_t shard = 0; shard < state_.server_ids().size(); ++shard) {
    if (state_.server_ids()[shard] != changed.server_id) continue;
    plan_change_.servers = true;
    plan_change_.shared = true;
    // It has registered, or was away: what it has sent may be lost.
    observed_.shards[shard].report_seq = 0;
    if (!changed.restarted) continue;
    ForgetReport(state_, static_cast<int32_t>(shard), observed_);
  }
  Advance();
  return absl::OkStatus();
}

absl::Status RunMachine::Take(const event::MoveShards& moved,
                              RunAnswer& answer) {
  storage::v1::Record record;
  storage::v1::RunPlaced& placed = *record.mutable_run_placed();
  placed.set_placement_epoch(state_.placement_epoch() + 1);
  const auto& server_ids = state_.server_ids();
  bool has_shard = false;
  for (const std::string& server_id : server_ids) {
    const bool is_moved = server_id == moved.from;
    has_shard |= is_moved;
    placed.add_server_ids(is_moved ? moved.to : server_id);
  }
  if (!has_shard) return absl::OkStatus();
  if (moved.from != moved.to) {
    if (std::find(server_ids.begin(), server_ids.end(), moved.to) !=
        server_ids.end()) {
      return Refuse(absl::StatusCode::kFailedPrecondition, "SERVER_TAKEN",
                    absl::StrCat("server ", moved.to, " has a shard of run ",
                                 state_.run_id(),
                                 " already: name another server"));
    }
    const ServerInfo* const to = servers_.FindServer(moved.to);
    const std::string missing =
        DescribeMissing(to == nullptr ? 0 : to->features);
    if (!missing.empty()) {
      return Refuse(absl::StatusCode::kFailedPrecondition, "MISSING_FEATURES",
                    absl::StrCat("server ", moved.to, " lacks ", missing,
                                 ", which run ", state_.run_id(),
                                 " needs: upgrade its program"));
    }
  }
  std::vector<size_t> shards;
  for (size_t shard = 0; shard < server_ids.size(); ++shard) {
    if (server_ids[shard] == moved.from) shards.push_back(shard);
  }
  Emit(std::move(record));
  for (const size_t shard : shards) {
    ForgetReport(state_, static_cast<int32_t>(shard), observed_);
    reasons_.push_back(absl::StrCat("shard ", shard, " of ", moved.from,
                                    " belongs to ", moved.to,
                                    ", with another data directory"));
  }
  Advance();
  return absl::OkStatus();
}

namespace {

// The header that a shard has reported for `key`, or had; null: none has.
const v1::ContributionInfo* FindHeader(const Observations& observed,
                                       const v1::ContributionKey& key) {
  const KnownContribution* const known = observed.index.Find(ToPlace(key));
  if (known == nullptr) return nullptr;
  for (const ShardPart& part : known->parts) {
    if (part.info != nullptr) return part.info.get();
    if (part.had != nullptr) return part.had.get();
  }
  return nullptr;
}

template <typename Body>
void AddWorkTo(const Observations& observed, Body& body) {
  for (const v1::ContributionOutcome& outcome : body.outcomes()) {
    storage::v1::OutcomeWork& work = *body.add_work();
    const v1::ContributionInfo* const info =
        FindHeader(observed, outcome.key());
    if (info == nullptr) continue;
    work.set_step_count(info->step_count());
    work.set_token_count(info->token_count());
  }
}

}  // namespace

void RunMachine::AddWork(storage::v1::Record& record) const {
  if (record.has_outcomes_set()) {
    AddWorkTo(observed_, *record.mutable_outcomes_set());
  } else if (record.has_round_aborted()) {
    AddWorkTo(observed_, *record.mutable_round_aborted());
  }
}

// Plans warn of equal digests.
void RunMachine::SetSamples(int32_t slot, const std::string& digest) {
  if (observed_.sample_readers.Has(slot, digest)) return;
  plan_change_.slots.merge(observed_.sample_readers.ListNaming(slot));
  observed_.sample_readers.Set(slot, digest);
  plan_change_.slots.merge(observed_.sample_readers.ListNaming(slot));
  plan_change_.slots.insert(slot);
}

void RunMachine::Emit(storage::v1::Record record) {
  AddWork(record);
  record.set_revision(state_.revision() + 1);
  *record.mutable_time() = ToProto(now_);
  if (record.has_round_committed()) {
    *record.mutable_round_committed()->mutable_round()->mutable_commit_time() =
        record.time();
  }
  CHECK_OK(state_.Apply(record));
  ResizeObservations();
  TakeRecord(state_, record, observed_);
  if (record.has_run_state_set()) RestartIdleTime(now_, observed_);
  plan_change_.Add(ChangeBy(record));
  contribution_count_ += record.round_sealed().seal().contributions_size() +
                         record.round_committed().commit().outcomes_size();
  if (record.has_member_set()) {
    // Warnings name it.
    plan_change_.slots.merge(
        observed_.sample_readers.ListNaming(record.member_set().slot()));
  }
  records_.push_back(std::move(record));
}

void RunMachine::EmitAll(Decision decision) {
  for (storage::v1::Record& record : decision.records) Emit(std::move(record));
  reasons_.push_back(std::move(decision.reason));
}

void RunMachine::EmitMember(storage::v1::MemberSet member) {
  const int32_t slot = member.slot();
  if (member.state() != v1::ISLAND_STATE_LEFT) member.clear_leave();
  storage::v1::Record record;
  *record.mutable_member_set() = std::move(member);
  Emit(std::move(record));
  if (!state_.members()[slot].present()) {
    SetSamples(slot, "");
    observed_.leases.Set(slot, absl::InfiniteFuture());
    SetNotAway(slot);
  }
}

void RunMachine::EmitOutcomes(std::vector<v1::ContributionOutcome> outcomes) {
  if (outcomes.empty()) return;
  storage::v1::Record record;
  for (v1::ContributionOutcome& outcome : outcomes) {
    *record.mutable_outcomes_set()->add_outcomes() = std::move(outcome);
  }
  Emit(std::move(record));
}

void RunMachine::EmitPin(const v1::Pin& pin, absl::Duration lease_duration) {
  storage::v1::Record record;
  *record.mutable_pin_set()->mutable_pin() = pin;
  *record.mutable_pin_set()->mutable_lease_duration() = ToProto(lease_duration);
  // A renewal keeps the point of the cut.
  const auto held = state_.pins().find(pin.pin_id());
  if (held == state_.pins().end()) {
    *record.mutable_pin_set()->mutable_point() = state_.MakeRestorePoint();
  } else if (held->second.pin_set().has_point()) {
    *record.mutable_pin_set()->mutable_point() = held->second.pin_set().point();
  }
  if (pin.checkpoint()) {
    observed_.pin_ends.erase(pin.pin_id());
  } else {
    observed_.pin_ends[pin.pin_id()] = now_ + lease_duration;
  }
  Emit(std::move(record));
}

void RunMachine::EmitRelease(const std::string& pin_id) {
  observed_.pin_ends.erase(pin_id);
  storage::v1::Record record;
  record.mutable_pin_released()->set_pin_id(pin_id);
  Emit(std::move(record));
}

std::vector<storage::v1::Record> RunMachine::TakeRecords() {
  return std::exchange(records_, {});
}

std::vector<std::string> RunMachine::TakeReasons() {
  return std::exchange(reasons_, {});
}

std::vector<v1::SyncPhases> RunMachine::TakePhases() {
  return std::exchange(phases_, {});
}

PlanChange RunMachine::TakePlanChange() {
  return std::exchange(plan_change_, {});
}

}  // namespace atl::coordinator
