// One run: events and time in, records and a reason out.
//
// Pure: no thread, no clock, no I/O. Thread-compatible.
//
// Step takes one event, decides what follows and applies the resulting records
// to its own state at once. The caller makes the records from TakeRecords
// durable before plans, answers or queries show the new state. If that fails,
// it drops the machine and replays the log into a new one.
//
// Time never runs backwards: an earlier `now` counts as the newest one seen.
// Only Tick ends leases, grace windows and deadlines. So the caller can first
// handle all events that came before that time.

#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/storage/v1/cluster_object.pb.h"
#include "atoll/storage/v1/mirror_manifest.pb.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/run_service.pb.h"
#include "atoll/v1/server_service.pb.h"
#include "coordinator/core/outputs/plan_change.h"
#include "coordinator/core/rounds/kept_checkpoints.h"
#include "coordinator/core/rounds/rounds.h"
#include "coordinator/core/run_event.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// A checkpoint that its shards have copied to the mirror, and that is whole once
// its manifest is written.
struct MirrorWork {
  storage::v1::MirrorManifest manifest;  // Without create_time.
  // The caller, as ListMirrorOwners has it. The Coordinator sets it.
  storage::v1::RunOwner owner;
  // run_epoch and commit_seq of the checkpoints that the run keeps: all others
  // before the last of these go.
  std::vector<std::pair<int64_t, int64_t>> kept;
};

// An island is away after this time without a plan stream, from its join or from
// the end of its last one. A server closes each stream at --connection-age, and
// the client opens another.
inline constexpr absl::Duration kStreamGrace = absl::Seconds(2);

// The same from the start of the coordinator, when all islands come back at once.
inline constexpr absl::Duration kReconnectGrace = absl::Seconds(10);

// Leases that exports may hold at once.
inline constexpr int kPinLeasesMax = 16;

// A step decides no further round once its records name so many contributions:
// heartbeats do not wait for all fragments' rounds.
inline constexpr int64_t kContributionsAStep = 2048;

class RunMachine {
 public:
  // `servers` must outlive the machine. `on_step` is called at the start of
  // every Step; empty: nothing is.
  explicit RunMachine(const ServerDirectory& servers,
                      std::function<void()> on_step = nullptr,
                      int64_t contributions_a_step = kContributionsAStep)
      : servers_(servers),
        on_step_(std::move(on_step)),
        contributions_a_step_(contributions_a_step) {}
  RunMachine(const RunMachine&) = delete;
  RunMachine& operator=(const RunMachine&) = delete;

  // --- Recovery: before the first step ---------------------------------------

  // Loads the state after record `revision`, made at `time`. Before any Replay.
  //
  // DATA_LOSS: as RunState::Restore.
  absl::Status Restore(const storage::v1::RunSnapshot& snapshot,
                       int64_t revision, absl::Time time);
  // Replays a record. event::Recovered follows the last one.
  //
  // DATA_LOSS: as RunState::Apply.
  absl::Status Replay(const storage::v1::Record& record);

  // --- Events ----------------------------------------------------------------

  // Handles `event` at `now`. Most events, and always Tick, decide everything
  // that follows, or what kContributionsAStep permits: NextTimer is then now.
  // Returns the error for the event's caller. After an error no record was
  // made; only the machine's time and an island's lease may have advanced.
  absl::StatusOr<RunAnswer> Step(const RunEvent& event, absl::Time now);
  // For `duration` the caller read no events. Every lease, grace window and
  // deadline ends later by that time.
  void AddStall(absl::Duration duration);

  // OK if the credentials are those of a member's newest epoch.
  //
  // FAILED_PRECONDITION: not a member, or its lease has ended.
  // ABORTED: the epoch is not the newest.
  // UNAUTHENTICATED: the secret is not its session's.
  absl::Status CheckIsland(const IslandCredentials& island) const;
  // Ends decisions for good, because the coordinator's log is not the newest.
  // Events are refused with `refusal`, except an Export that only reads.
  // Recovered may follow. `fault` says why, without next_command.
  void Freeze(const v1::Fault& fault, absl::Status refusal);
  // When event::Tick is needed if no other event comes before. Costs O(1) after
  // a heartbeat.
  absl::Time NextTimer() const;
  // True if event::Tick at `now` may decide something.
  bool NeedsTick(absl::Time now) const {
    return unsettled_ || NextTimer() <= now;
  }
  // The same as event::Tick at `now`. Requires: NeedsTick(now) was false.
  void SkipTick(absl::Time now) {
    SetNow(now);
    due_ = std::max(due_, now);
  }
  // A fact outside the run has changed on which it may decide.
  void Unsettle() { unsettled_ = true; }
  // Members that have a lease; 0 once the run has ended.
  int64_t island_count() const {
    return state_.ended() ? 0 : static_cast<int64_t>(observed_.leases.size());
  }

  // --- Results ---------------------------------------------------------------

  // The records since the last call, in order, and a sentence per decision.
  std::vector<storage::v1::Record> TakeRecords();
  std::vector<std::string> TakeReasons();
  // Phases of synchronizations that islands have reported for the first time.
  std::vector<v1::SyncPhases> TakePhases();
  // The plans that may have changed since the last call.
  PlanChange TakePlanChange();
  // True if FindMirrorWork may have more than at the last call.
  bool TakeMirrorDue() { return std::exchange(mirror_due_, false); }
  // The newest checkpoint that must be completed in the mirror; nullopt: none,
  // or the machine is frozen. event::MirrorEnded follows.
  std::optional<MirrorWork> FindMirrorWork() const;

  const RunState& state() const { return state_; }
  const Observations& observed() const { return observed_; }
  // Returns why an active or starting run makes no progress; empty if it does.
  const std::string& waits_for() const { return waits_for_; }
  // The fault that stops the run; nullopt without one.
  std::optional<v1::Fault> fault() const;
  // The place of EncodeSpecPart's result (run_queries.h); null until its first
  // call. Events do not change a spec.
  std::shared_ptr<const std::string>& encoded_spec() { return encoded_spec_; }
  // True if TakeRecords has something.
  bool has_records() const { return !records_.empty(); }

 private:
  // In run_machine.cc and run_machine_operators.cc.
  absl::Status Take(const event::Create& create, RunAnswer& answer);
  absl::Status Take(const event::Adopt& adopt, RunAnswer& answer);
  absl::Status Take(const event::Recovered& recovered, RunAnswer& answer);
  absl::Status Take(const event::Supersede& supersede, RunAnswer& answer);
  absl::Status Take(const event::Join& join, RunAnswer& answer);
  absl::Status Take(const event::Heartbeat& heartbeat, RunAnswer& answer);
  absl::Status Take(const event::PlanStream& stream, RunAnswer& answer);
  absl::Status Take(const event::Ready& ready, RunAnswer& answer);
  absl::Status Take(const event::Progress& progress, RunAnswer& answer);
  absl::Status Take(const event::Leave& leave, RunAnswer& answer);
  absl::Status Take(const event::Pause& pause, RunAnswer& answer);
  absl::Status Take(const event::Resume& resume, RunAnswer& answer);
  absl::Status Take(const event::Cancel& cancel, RunAnswer& answer);
  absl::Status Take(const event::RemoveIsland& remove, RunAnswer& answer);
  absl::Status Take(const event::RevokeToken& revoke, RunAnswer& answer);
  absl::Status Take(const event::Export& request, RunAnswer& answer);
  absl::Status Take(const event::Restore& restore, RunAnswer& answer);
  absl::Status Take(const event::MirrorEnded& ended, RunAnswer& answer);
  absl::Status Take(const event::ShardReported& reported, RunAnswer& answer);
  absl::Status Take(const event::ServerChanged& changed, RunAnswer& answer);
  absl::Status Take(const event::MoveShards& moved, RunAnswer& answer);
  absl::Status Take(const event::Tick& tick, RunAnswer& answer);
  void Advance();
  // In run_machine_mirror.cc.
  // True if another cluster, or a later log, owns the run in the mirror.
  bool HasOtherMirrorOwner() const;
  // The newest pin that all shards have copied, and no manifest names yet. Null:
  // none.
  const storage::v1::PinSet* FindMirrorDue() const;
  // In run_machine_restore.cc.
  // The pins that a restore may use, in the order of their cuts.
  std::vector<const v1::Pin*> ListSources() const;
  // The pin that RestoreRunRequest.from names, which every shard holds.
  //
  // INVALID_ARGUMENT, NOT_FOUND, FAILED_PRECONDITION: as RestoreRun has them.
  absl::StatusOr<v1::Pin> FindSource(const std::string& from) const;
  // NO_CHECKPOINT. `commit`: the one that `from` names, or -1.
  absl::Status RefuseSource(absl::string_view from, int64_t commit) const;
  // True if every shard's newest report or the mirror has the cut.
  bool IsHeld(const v1::Pin& pin) const;
  // The newest checkpoint that a restore may start from, that is not suspect, and
  // that is held. Null: none is.
  const v1::Pin* FindDurableCheckpoint() const;
  // NOT_DURABLE or NOT_REPORTED, unless all shards hold the cut, or the mirror
  // has it.
  absl::Status CheckHeld(const v1::Pin& pin) const;
  // True if a shard has this fault since the newest restore. DATA_LOSS: it cannot
  // go back to the cut. SHARD_BEHIND: its directory is new.
  bool HasRestoreFault(absl::string_view kind) const;
  // True if the run went back to this source, and nothing is committed since.
  // No source means another one if that cut is damaged. False if a shard has
  // lost its directory since.
  bool IsRestoredTo(const std::string& from) const;
  // Makes the cut of `pin` the newest one, under these numbers.
  void EmitRestore(const v1::Pin& pin, int64_t run_epoch, int64_t commit_seq);
  // Drops what was observed of the epoch before; begins every lease anew.
  void ForgetEpoch();
  // In run_machine_faults.cc.
  absl::Status TakeFrozen(const RunEvent& event, RunAnswer& answer);
  // The cut that a frozen run lets a reader have; no record keeps it.
  absl::Status ReadCut(const v1::ExportCheckpointRequest& request,
                       RunAnswer& answer) const;
  // A command that works in a frozen run.
  std::string ReadCommand() const;
  // Describes the features that this run needs and a peer that sent `features`
  // lacks; empty if it lacks none.
  std::string DescribeMissing(uint64_t features);
  absl::Status CheckJoin(const v1::JoinRequest& request);

  void Emit(storage::v1::Record record);
  void EmitAll(Decision decision);
  void EmitMember(storage::v1::MemberSet member);
  // Adds the work of outcomes that no commit names.
  void AddWork(storage::v1::Record& record) const;
  void EmitOutcomes(std::vector<v1::ContributionOutcome> outcomes);
  // Records the unpushed work that is not counted yet.
  void EmitUnpushed(int32_t slot, const v1::ReportProgressRequest& request);
  void EmitPin(const v1::Pin& pin, absl::Duration lease_duration);
  void EmitRelease(const std::string& pin_id);

  // Makes one pass over everything that may be due; true if it made a record.
  // It decides on the marked fragments (FragmentDecision::is_due). The last
  // decisions on the others stand.
  bool AdvanceOnce();
  // True if the other fragments' rounds must wait for another step.
  bool IsFull() const { return contribution_count_ >= contributions_a_step_; }
  // Marks what must be decided again because due_ has changed.
  void SetDueByTime();
  // Fragments that this pass decides on. The pass marks others too.
  bool IsDue(int32_t fragment) const {
    return is_in_pass_[fragment] || observed_.decisions[fragment].is_due;
  }
  // Emits outcomes of contributions that no round can take any longer.
  void SettleEnded();
  // Measures islands whose contributions have come.
  void NoteSpeeds();
  void AdvanceStart();
  void PauseOnFault();
  void ExpireLeases();
  void NoteAways();
  void ExpirePins();
  void AdvanceSealed();
  void AdvanceOpen();
  // The guard's part: pauses a run whose spec asks for it while a commit or an
  // evaluation is outside the band.
  void PauseOnGuard();
  bool PausesOnGuard() const;
  // Says why a commit of `committed` is outside the band, if it is.
  void NoteHeld(int32_t committed);
  // Makes an automatic checkpoint if a commit of `committed` makes one due and
  // the guard permits it. Releases those that are no longer kept.
  void KeepCheckpoint(int32_t committed);
  std::vector<KnownCheckpoint> ListCheckpoints() const;  // Without `final`.
  // Marks checkpoints with at least this version of fragment 0, or takes the
  // mark from them.
  void SetSuspect(bool suspect, int64_t version_min);
  void CompleteIfDone();

  absl::Status CheckNotEnded() const;
  // Slot, epoch and next_seq that a new island's record starts from.
  //
  // RESOURCE_EXHAUSTED: no slot is free.
  absl::StatusOr<storage::v1::MemberSet> MakeMember() const;
  // The data shard that another member yields to the island of `slot`; nullopt:
  // none does (rounds/data_lease.h). `old`: what was observed of the island.
  std::optional<int32_t> TakeDataShard(const std::string& island_id,
                                       int32_t slot, const ObservedMember* old,
                                       const std::string& token_id);
  // Counts a call of a member.
  //
  // RESOURCE_EXHAUSTED, TOO_MANY_CALLS: the member calls too often.
  absl::Status CountCall(const std::string& island_id, TokenBucket& rate);
  // As CheckIsland, and counts the call among the island's reports.
  absl::Status CheckReport(const IslandCredentials& island);
  void Touch(const std::string& island_id);
  void TakeProgress(const std::string& island_id,
                    const v1::ReportProgressRequest& request);
  // Its plan stream is there, or it is no longer present.
  void SetNotAway(int32_t slot);
  // The present member has no plan stream: it is away after `grace`, in an
  // elastic run that is not async. An older island, which does not report in
  // heartbeats, never is.
  void AwaitStream(const Member& member, absl::Duration grace);
  // NextTimer without the leases and `aways` of members.
  absl::Time FindOtherTimer() const;
  // Notes which samples the island of `slot` reads.
  void SetSamples(int32_t slot, const std::string& digest);
  void SetNow(absl::Time now) { now_ = std::max(now_, now); }
  void ResizeObservations();
  v1::Pin MakePin(const std::string& pin_id, bool checkpoint) const;
  // Checks that a pin can keep the contributions that `request` asks for.
  absl::Status CheckKeep(const v1::ExportCheckpointRequest& request) const;
  int64_t SeqSeen(int32_t slot) const;
  void Wait(const std::string& reason);

  const ServerDirectory& servers_;
  const std::function<void()> on_step_;
  RunState state_;
  Observations observed_;
  absl::Time now_ = absl::InfinitePast();
  // The newest Tick's time. Leases and deadlines that end by then have ended.
  absl::Time due_ = absl::InfinitePast();
  // An event since the newest Tick may have left something to decide.
  bool unsettled_ = false;
  // FindOtherTimer's result; not set after an event that may change it.
  mutable std::optional<absl::Time> other_timer_;
  std::string waits_for_;
  std::shared_ptr<const std::string> encoded_spec_;
  std::optional<uint64_t> required_features_;  // Once it was needed.
  v1::Fault frozen_fault_;
  absl::Status refusal_;  // Not OK: frozen.

  const int64_t contributions_a_step_;
  int64_t contribution_count_ = 0;  // In records of the newest Advance.
  bool is_cut_ = false;             // That Advance has left the rest.
  std::vector<bool> is_in_pass_;  // By fragment: marked before the pass.
  std::string open_waits_for_;    // Why the last DecideOpen made no record.
  // When DecideRecall and the islands that sit out must be asked again, as of
  // the revision.
  absl::Time recall_timer_ = absl::InfiniteFuture();
  absl::Time sit_out_timer_ = absl::InfiniteFuture();
  int64_t timers_revision_ = -1;

  std::vector<storage::v1::Record> records_;
  std::vector<std::string> reasons_;
  std::vector<v1::SyncPhases> phases_;
  PlanChange plan_change_;
  bool mirror_due_ = false;
};

// True if a run's own checkpoint may have this name.
bool IsCheckpointId(absl::string_view pin_id);

// Returns how long an island of the run may be silent before it is LOST.
absl::Duration IslandLeaseDuration(const v1::RunSpec& spec);

}  // namespace atl::coordinator
