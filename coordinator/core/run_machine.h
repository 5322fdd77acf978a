// One run: events and time in, records and a reason out.
//
// Pure: no thread, no clock, no I/O. Thread-compatible.
//
// A call takes one event in, decides all that follows from it, and applies the
// records that it makes to its own state at once. The caller takes them with
// TakeRecords, makes them durable, and only then lets anything of the new state
// be seen: plans, answers, queries. If it cannot make them durable it drops the
// machine and replays the log into a new one.
//
// Times never run backwards here: an earlier `now` than seen counts as the
// newest one seen.

#ifndef COORDINATOR_CORE_RUN_MACHINE_H_
#define COORDINATOR_CORE_RUN_MACHINE_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/run_service.pb.h"
#include "atoll/v1/server_service.pb.h"
#include "coordinator/core/rounds/rounds.h"
#include "coordinator/core/state/observations.h"
#include "coordinator/core/state/run_state.h"

namespace atl::coordinator {

// Leases that exports may hold at once, and checkpoints that a run makes by
// itself and keeps beside its last: older ones are released.
inline constexpr int kPinLeasesMax = 16;
inline constexpr int kCheckpointsMax = 32;

// Who an island says it is.
struct IslandCredentials {
  std::string island_id;
  int64_t island_epoch = 0;
  std::string session_secret;  // 32 bytes.
};

class RunMachine {
 public:
  // `servers` must outlive the machine.
  explicit RunMachine(const ServerDirectory& servers) : servers_(servers) {}
  RunMachine(const RunMachine&) = delete;
  RunMachine& operator=(const RunMachine&) = delete;

  // --- How it begins: Create, or the others ----------------------------------

  // Records a new run. Requires: ids and spec were validated.
  void Create(const std::string& run_id, const v1::RunSpec& spec,
              absl::Time now);

  // Takes the state after record `revision` of the log, made at `time`. Before
  // any record.
  //
  // DATA_LOSS: as RunState::Restore.
  absl::Status Restore(const storage::v1::RunSnapshot& snapshot,
                       int64_t revision, absl::Time time);
  // Takes a record of the log in; after the last one Recover is to be called,
  // which makes all leases whole.
  //
  // DATA_LOSS: as RunState::Apply.
  absl::Status Replay(const storage::v1::Record& record);
  void Recover(absl::Time now);

  // --- Events of islands: errors as island_service.proto has them ------------

  // `session_secret`: 32 random bytes that the caller has made. The response
  // has no plan; the caller adds it.
  absl::StatusOr<v1::JoinResponse> Join(const v1::JoinRequest& request,
                                        const std::string& session_secret,
                                        absl::Time now);
  // OK for a member's newest life.
  //
  // FAILED_PRECONDITION: not a member, or its lease has ended.
  // ABORTED: the epoch is not the newest.
  // UNAUTHENTICATED: the secret is not its session's.
  absl::Status CheckIsland(const IslandCredentials& island) const;
  // As CheckIsland; renews the lease.
  absl::Status Heartbeat(const IslandCredentials& island, absl::Time now);
  absl::Status ReportReady(const IslandCredentials& island, int64_t commit_seq,
                           absl::Time now);
  absl::Status ReportProgress(const IslandCredentials& island,
                              const v1::ReportProgressRequest& request,
                              absl::Time now);
  absl::Status Leave(const IslandCredentials& island, absl::Time now);

  // --- Events of operators: errors as run_service.proto has them -------------

  absl::Status Pause(absl::Time now);
  absl::Status Resume(absl::Time now);
  absl::Status Cancel(absl::Time now);
  absl::Status RemoveIsland(const std::string& island_id, bool readmit,
                            absl::Time now);
  absl::StatusOr<v1::ExportCheckpointResponse> Export(
      const v1::ExportCheckpointRequest& request, absl::Time now);

  // --- Events of servers -----------------------------------------------------

  // A shard's report, by the present life of the server that owns it; others
  // are ignored.
  void OnShardReport(const std::string& server_id, v1::ShardReport report,
                     absl::Time now);
  // A server registered, came back or went away. `restarted`: what its shards
  // reported before no longer holds.
  void OnServerChanged(const std::string& server_id, bool restarted,
                       absl::Time now);

  // --- Time ------------------------------------------------------------------

  // Decides all that is due at `now`.
  void Advance(absl::Time now);
  // When Advance has to be called at the latest without an event.
  absl::Time NextTimer() const;

  // --- Results ---------------------------------------------------------------

  // Records made since the last call, in order, and a sentence for each
  // decision among them.
  std::vector<storage::v1::Record> TakeRecords();
  std::vector<std::string> TakeReasons();
  // True if a plan may have changed since the last call.
  bool TakePlanChanged();

  const RunState& state() const { return state_; }
  const Observations& observed() const { return observed_; }
  // What an active or starting run waits for; empty if for nothing.
  const std::string& waits_for() const { return waits_for_; }

 private:
  void Emit(storage::v1::Record record);
  void EmitAll(Decision decision);
  void EmitState(v1::RunState state, const std::string& reason);
  void EmitMember(storage::v1::MemberSet member);
  void EmitOutcomes(std::vector<v1::ContributionOutcome> outcomes);
  void EmitPin(const v1::Pin& pin, absl::Duration lease_duration);
  void EmitRelease(const std::string& pin_id);

  // One pass over all that may be due; true if a record was made.
  bool AdvanceOnce();
  void AdvanceStart();
  // A shard that has stopped pauses the run, so that an operator sees why.
  void PauseOnFault();
  void ExpireLeases();
  void ExpirePins();
  void AdvanceSealed();
  void AdvanceOpen();
  // `committed`: the fragment that has a new version.
  void KeepCheckpoint(int32_t committed);
  void CompleteIfDone();

  bool is_async() const;
  absl::Status CheckNotEnded() const;
  void Touch(const std::string& island_id);
  void SetNow(absl::Time now) { now_ = std::max(now_, now); }
  void ResizeObservations();
  v1::Pin MakePin(const std::string& pin_id, bool checkpoint) const;
  // Whether a pin can keep the contributions that `request` asks for.
  absl::Status CheckKeep(const v1::ExportCheckpointRequest& request) const;
  int64_t SeqSeen(int32_t slot) const;
  absl::Duration LeaseDuration() const;
  void Wait(const std::string& reason);

  const ServerDirectory& servers_;
  RunState state_;
  Observations observed_;
  absl::Time now_ = absl::InfinitePast();
  std::string waits_for_;

  std::vector<storage::v1::Record> records_;
  std::vector<std::string> reasons_;
  bool plan_changed_ = false;
};

// How long an island of a run with `spec` may be silent.
absl::Duration IslandLeaseDuration(const v1::RunSpec& spec);

}  // namespace atl::coordinator

#endif  // COORDINATOR_CORE_RUN_MACHINE_H_
