// All runs of a coordinator, and the registry of servers.
//
// Pure: no thread, no clock, no I/O. Thread-compatible. The caller makes the
// records from TakeEffects durable before anyone may see the new state.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/storage/v1/cluster_object.pb.h"
#include "atoll/storage/v1/coordinator_records.pb.h"
#include "atoll/storage/v1/mirror_manifest.pb.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/run_service.pb.h"
#include "atoll/v1/server_service.pb.h"
#include "atoll/v1/training_state_service.pb.h"
#include "base/identity/identity.h"
#include "coordinator/core/deleted_runs.h"
#include "coordinator/core/enrolment/enrolments.h"
#include "coordinator/core/log_history.h"
#include "coordinator/core/log_tail.h"
#include "coordinator/core/outputs/audit_rows.h"
#include "coordinator/core/outputs/batch.h"
#include "coordinator/core/outputs/plan_change.h"
#include "coordinator/core/refused_peers.h"
#include "coordinator/core/report_joiner.h"
#include "coordinator/core/run_machine.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/core/state/mirrored_run.h"
#include "google/protobuf/repeated_field.h"
#include "google/protobuf/timestamp.pb.h"

namespace atl::coordinator {

inline constexpr int64_t kRunsMax = 1024;
inline constexpr int64_t kRegisteredServersMax = 1024;

struct CoordinatorOptions {
  // A server that is silent for this long counts as away.
  absl::Duration server_lease_duration = absl::Seconds(10);
  // Applies to each log separately.
  SnapshotPolicy snapshots;
  // False: the program has no --mirror.
  bool has_mirror = false;
};

// Random ids (base/random_id) of one start.
struct StartIds {
  std::string cluster_id;  // Used only if the log has none.
  std::string start_id;
  std::string log_secret = "";  // Used only if the log has no cluster_id.
};

// The phases of a synchronization that an island has reported.
struct ReportedPhases {
  std::string run_id;
  v1::SyncPhases sync;
};

struct Effects {
  Batch batch;                         // To make durable.
  std::vector<std::string> reasons;    // For the program's log.
  std::vector<std::string> warnings;   // The same, for an operator to act on.
  std::vector<ReportedPhases> phases;  // For the program's metrics.
  // Runs with new records or other plans, and the deleted ones.
  std::set<std::string> changed_runs;
  // Possible changes in the plans of runs.
  std::map<std::string, PlanChange> plan_changes;
  // Servers that have registered, and those whose plan changes in another part
  // than its runs. Streams of theirs may have to end.
  std::set<std::string> changed_servers;
  int64_t plan_revision = 0;     // Plans of the state after the batch have it.
  // ListMirrorWork may have more, or DescribeForMirror other content.
  bool mirror_due = false;
};

// True if the entry can change what DescribeForMirror returns, besides
// log_index.
bool ChangesClusterObject(const LogEntry& entry);

// The calling peer, for the audit log.
struct Actor {
  std::string name;                // "operator:anna", or the peer's address.
  std::string certificate_sha256;  // Hex; empty without TLS.
};

// The circumstances of a call of EnrolmentService.
struct EnrolmentCall {
  Actor actor;
  EnrolmentRandom random;
  absl::Time clock;  // The machine's time, for certificates and expiries.
  absl::Time now;    // The log's time.
};

// The time to an island's next heartbeat: all islands of all runs together make
// about 500 calls a second, each one every 2 s to 20 s, and four in a lease.
absl::Duration HeartbeatInterval(int64_t island_count, absl::Duration lease);

class Coordinator : public ServerDirectory {
 public:
  explicit Coordinator(const CoordinatorOptions& options) : options_(options) {}

  // --- Recovery --------------------------------------------------------------

  // Loads the snapshot of a log, before the log's entries.
  //
  // DATA_LOSS: it is incomplete or of another log.
  // FAILED_PRECONDITION: its format is newer than this program's.
  absl::Status Restore(const LogSnapshot& snapshot);
  // Replays a log's next entry; the first one follows the log's snapshot.
  //
  // DATA_LOSS: the entry does not follow.
  absl::Status Replay(const LogEntry& entry);
  // The newest time among snapshots and records; InfinitePast without any. No
  // later call may pass an earlier time, or leases and windows would grow by as
  // much as the clock was set back.
  absl::Time newest_time() const;
  // Starts this life: coordinator_epoch + 1, every lease anew. `log_index` is
  // the number of batches in the store.
  void Start(absl::Time now, const StartIds& ids, int64_t log_index);
  // In place of Start: the log is an older copy of a lost one, whose place it
  // takes from now on. No other call but TakeEffects may follow.
  // `jump_count`: it is the log that was made from the copy so many times.
  void Supersede(absl::Time now, const std::string& start_id,
                 int64_t log_index, int64_t jump_count = 1);
  // Starts a life that only reads, on a store with `damage` (Store::damage).
  void StartDamaged(absl::Time now, const absl::Status& damage);

  int64_t coordinator_epoch() const { return coordinator_epoch_; }

  // --- Whose log it is -------------------------------------------------------

  // Checks what a peer has seen of the log, before anything else that it asks.
  // A peer that has seen more freezes the coordinator: until it is started on
  // the newest log, it refuses every change and decides nothing; it only reads.
  //
  // FAILED_PRECONDITION: OTHER_CLUSTER, and `peer` is noted; or frozen:
  // LOG_BEHIND, LOG_DAMAGED.
  absl::Status CheckLog(const v1::LogPosition& seen, const PeerName& peer,
                        absl::Time now);
  // The refusal of every change while frozen; otherwise OK.
  const absl::Status& CheckWritable() const { return refusal_; }

  // --- Runs ------------------------------------------------------------------

  // Errors: as RunService.CreateRun. `run_uid` is a random id for a new run; if
  // it is empty, the run's follows from its id and time.
  absl::StatusOr<v1::CreateRunResponse> CreateRun(
      const v1::CreateRunRequest& request, absl::Time now,
      const std::string& run_uid = "");

  // `manifest` and `server_count`: as AdoptRunRequest has them. Errors: as
  // RunService.AdoptRun.
  absl::StatusOr<v1::AdoptRunResponse> AdoptRun(
      const storage::v1::MirrorManifest& manifest, int32_t server_count,
      absl::Time now, const ReachedNumbers& reached = {});

  // Deletes a run; `run_uid` as DeleteRunRequest has it. Errors: as
  // RunService.DeleteRun.
  absl::StatusOr<v1::DeleteRunResponse> DeleteRun(const std::string& run_id,
                                                  const std::string& run_uid,
                                                  absl::Time now);

  // NOT_FOUND: no run has this id. FAILED_PRECONDITION: the same, while frozen.
  absl::StatusOr<RunMachine*> FindRun(const std::string& run_id);
  // By run_id.
  const std::map<std::string, std::unique_ptr<RunMachine>>& runs() const {
    return runs_;
  }

  // All runs, for BuildRuns.
  std::vector<RunToList> ListRuns() const;

  // --- Servers: errors as server_service.proto has them ----------------------

  absl::StatusOr<v1::RegisterServerResponse> RegisterServer(
      const v1::RegisterServerRequest& request, absl::Time now);
  // OK if `incarnation` is the newest of the server, and `directory_id` its
  // directory; empty, from older programs, is not checked.
  absl::Status CheckServer(const std::string& server_id, int64_t incarnation,
                           const std::string& directory_id = "") const;
  absl::StatusOr<v1::ReportShardsResponse> ReportShards(
      v1::ReportShardsRequest request, absl::Time now);
  // Keeps the health of a report that ReportShards has taken. `clock` is the
  // machine's time.
  void NoteHealth(const std::string& server_id, const v1::ServerHealth& health,
                  absl::Time clock);

  // Errors: as RunService.ReplaceServer.
  absl::StatusOr<v1::ReplaceServerResponse> ReplaceServer(
      const v1::ReplaceServerRequest& request, absl::Time now);

  // Without program_version and time.
  v1::GetClusterResponse DescribeCluster(absl::Time now) const;

  // --- Enrolment: errors as enrolment_service.proto has them ------------------

  absl::StatusOr<v1::AnnounceGateResponse> AnnounceGate(
      const v1::AnnounceGateRequest& request, const EnrolmentCall& call);
  absl::StatusOr<v1::ConsumeTokenResponse> ConsumeToken(
      const v1::ConsumeTokenRequest& request, const EnrolmentCall& call);
  absl::StatusOr<v1::CheckTokenResponse> CheckToken(
      const v1::CheckTokenRequest& request, const EnrolmentCall& call);
  absl::StatusOr<v1::RenewCertificateResponse> RenewCertificate(
      const v1::RenewCertificateRequest& request, const EnrolmentCall& call);
  absl::StatusOr<v1::CreateTokenResponse> CreateToken(
      const v1::CreateTokenRequest& request, const EnrolmentCall& call);
  absl::StatusOr<v1::RevokeTokenResponse> RevokeToken(
      const v1::RevokeTokenRequest& request, const EnrolmentCall& call);
  absl::StatusOr<v1::RevokeIslandResponse> RevokeIsland(
      const v1::RevokeIslandRequest& request, const EnrolmentCall& call);
  const Enrolments& enrolments() const { return enrolments_; }

  // FAILED_PRECONDITION, OTHER_CLUSTER: a certificate with `scope` is of another
  // cluster, so no answer here decides anything for its owner.
  absl::Status CheckCluster(const RunScope& scope) const;

  // OK if the owner of a certificate with `scope`, `role` and `name` may touch
  // `run`.
  // PERMISSION_DENIED: NOT_YOUR_RUN: the certificate is for other runs; REVOKED:
  // an operator has revoked the name.
  // FAILED_PRECONDITION, NOT_ENROLLED: the log has no record of this enrolled
  // certificate. A Join first finds out whether the log is the newest.
  absl::Status CheckScope(const RunScope& scope, Role role,
                          const std::string& name, const RunMachine& run) const;
  // PERMISSION_DENIED, REVOKED: an operator has revoked the name, of an enrolled
  // certificate or another.
  absl::Status CheckReadmission(const std::string& name,
                                const RunMachine& run) const;

  // The Join of an island with a certificate of `scope`, for its run.
  // FAILED_PRECONDITION, ISLAND_DURABILITY: no enrolled island may join it.
  absl::StatusOr<event::Join> MakeJoin(const v1::JoinRequest& request,
                                       std::string secret,
                                       const RunScope& scope,
                                       const RunMachine& run) const;

  // Adds an event to the audit log. `record` needs action, and what applies of
  // run_id, subject and detail.
  void Audit(const Actor& actor, v1::AuditRecord record, absl::Time now);

  // The answer to the heartbeat of a member of `run`.
  v1::HeartbeatResponse DescribeLease(const RunMachine& run) const;

  // Ends the leases and windows that end by `now`, and decides what follows.
  // Call it after all events that came before `now`. Looks only at runs that had
  // an event, or whose NextTimer has come.
  void Advance(absl::Time now);
  // For `duration` the caller read no events. Every lease, grace window and
  // deadline ends later by that time.
  void AddStall(absl::Duration duration);
  absl::Time NextTimer();

  // --- Results ---------------------------------------------------------------

  Effects TakeEffects(absl::Time now);

  // The present plans. Requires: `run` has a member with `slot`.
  v1::IslandPlan IslandPlan(const RunMachine& run, int32_t slot) const;
  v1::ServerPlan ServerPlan(const std::string& server_id) const;

  // Their parts, for a sender that sends what changed. The fields of an island's
  // plan that EncodeSharedPart leaves out:
  v1::IslandPlan IslandPlanHead(const RunMachine& run) const;
  // The plan without `runs`.
  v1::ServerPlan ServerPlanHead(const std::string& server_id) const;
  // The shard of `run` that the server's plan must tell of; nullopt: none.
  std::optional<int32_t> FindPlannedShard(const std::string& server_id,
                                          const RunMachine& run) const;
  // The plan of `run` for the owner of `shard`.
  v1::ServerRunPlan ServerRunPlan(const RunMachine& run, int32_t shard) const;
  // Adds the run's revoked and enrolled islands to a plan. They change only with
  // PlanChange::names.
  void AddIslandNames(const RunMachine& run, v1::ServerRunPlan& plan) const;
  // A server whose newest plan has this revision, or a newer one, knows all
  // that concerns it. Answers to its reports name it.
  int64_t ServerPlanRevision(const std::string& server_id) const;

  // Each run that is copied to the mirror, as its owner there, without
  // since_run_epoch and create_time. Empty: the coordinator only reads.
  // event::MirrorEnded of a run says that it has another owner.
  std::vector<storage::v1::RunOwner> ListMirrorOwners() const;
  // The newest checkpoint of each run that must be completed in the mirror.
  // event::MirrorEnded of its run follows.
  std::vector<MirrorWork> ListMirrorWork() const;
  // The cluster object of the present state, without create_time. No secret is
  // in it.
  storage::v1::ClusterObject DescribeForMirror() const;

  const VolatileSeries& series(const std::string& run_id) {
    return series_[run_id];
  }

  // ServerDirectory:
  const ServerInfo* FindServer(const std::string& server_id) const override;
  std::vector<std::string> AliveServers() const override;
  bool HasDeletedRun(const std::string& server_id,
                     const std::string& run_id) const override {
    return deleted_.IsIdWaiting(server_id, run_id);
  }
  const v1::Fault* FindRefusal(const std::string& server_id) const override;
  bool HasMirror() const override { return options_.has_mirror; }

 private:
  struct Server {
    ServerInfo info;
    absl::Time lease_end = absl::InfinitePast();
    int64_t report_seq = 0;
    ReportJoiner reports;
    std::optional<v1::ServerHealth> health;  // From its newest report.
    absl::Duration clock_ahead;  // Its clock minus the coordinator's, then.
    int64_t plan_revision = 0;  // When its plan may last have changed.
  };

  storage::v1::RunOwner DescribeOwner(const RunState& state) const;

  // CheckLog: only the error OTHER_CLUSTER. Runs of a refused server show it.
  absl::Status CheckPeer(const v1::LogPosition& seen, const PeerName& peer,
                         absl::Time now);
  // OTHER_DIRECTORY, STALE_INCARNATION: another process is or was the server.
  absl::Status CheckIdentity(const v1::RegisterServerRequest& request,
                             absl::Time now);
  bool HasShards(const std::string& server_id) const;
  // Gives the shards of `from` to `to`, a live server. Errors: as
  // RunService.ReplaceServer.
  absl::Status MoveShards(const std::string& from, const std::string& to,
                          absl::Time now);
  // OTHER_CLUSTER, with `fault`; notes it.
  absl::Status RefusePeer(const PeerName& peer, const v1::Fault& fault,
                          absl::Time now);
  void NoteRefusal(const PeerName& peer, const v1::Fault& fault,
                   absl::Time now);
  void Freeze(const v1::Fault& fault, const absl::Status& refusal);
  // The position of the batch with the present own records, or with those of
  // `run` if it is not null.
  v1::LogPosition Position(const RunMachine* run) const;
  // Forgets the deleted runs that a server has let go.
  void ForgetRuns(const v1::ReportShardsRequest& request, absl::Time now);
  static absl::Status TooManyRuns();
  // The refusal of a deletion for which there is no room.
  absl::Status TooManyDeleted() const;
  absl::Status ReplayOwn(const storage::v1::Record& record);
  // How far a log was replayed or handed out.
  struct Log {
    LogTail tail;
    google::protobuf::Timestamp time;  // The newest record's.
  };
  // Starts every lease anew.
  void BeginLife(absl::Time now);
  void SetServer(const storage::v1::ServerSet& set);
  void NoteRecord(const LogEntry& entry);
  void AddSnapshotIfDue(const std::string& run_id, Effects& effects);
  storage::v1::CoordinatorSnapshot OwnSnapshot() const;
  void EmitOwn(storage::v1::Record record, absl::Time now);
  // OK for host:port of at most 300 bytes.
  static absl::Status CheckAddress(const std::string& address);
  // The records of an event of enrolment, with the event in the last one.
  void EmitAudited(std::vector<storage::v1::Record> records, const Actor& actor,
                   v1::AuditRecord audit, absl::Time now);
  EnrolmentRun DescribeRun(const RunMachine& run) const;
  // host:port of each server of the run.
  google::protobuf::RepeatedPtrField<std::string> ServerAddresses(
      const RunMachine& run) const;
  void TellRuns(const std::string& server_id, bool restarted, absl::Time now);
  int64_t PlanRevision() const;
  // A machine whose every Step calls NoteStep.
  std::unique_ptr<RunMachine> MakeMachine(const std::string& run_id);
  void NoteStep(const std::string& run_id);
  // All runs may have something to decide, to hand out or to wait for.
  void NoteAllRuns();
  void NoteAllServers();
  // The run's servers must be told the names of its islands.
  void NoteNames(const std::string& run_uid);
  // Takes over what runs with new events wait for.
  void NoteTimers();
  void ForgetTimer(const std::string& run_id);
  void SampleIfDue(const std::string& run_id, const RunMachine& run,
                   absl::Time now);
  // Notes whose plans have changed with the newest revision.
  void NoteServerPlans(const Effects& effects);

  const CoordinatorOptions options_;
  int64_t coordinator_epoch_ = 0;
  int64_t own_revision_ = 0;
  int64_t plan_count_ = 0;
  LogHistory log_history_;
  absl::Status refusal_;  // Not OK: frozen.
  std::map<std::string, Server> servers_;
  RefusedPeers refused_peers_;
  std::map<std::string, std::unique_ptr<RunMachine>> runs_;
  std::map<std::string, Log> logs_;  // By run_id; "" is the coordinator's.
  DeletedRuns deleted_;
  Enrolments enrolments_;
  AuditRows audit_rows_;
  struct Gate {
    std::string address;
    std::string pin;
    absl::Time end;  // When it is forgotten.
  };
  std::map<std::string, Gate> gates_;  // By address.
  std::vector<std::string> deleted_run_ids_;  // Since TakeEffects.
  std::map<std::string, VolatileSeries> series_;
  std::map<std::string, absl::Time> sample_times_;
  absl::Time all_sampled_time_ = absl::InfinitePast();
  // The runs that had an event since the newest Advance, and since TakeEffects.
  std::set<std::string> undecided_runs_;
  std::set<std::string> stepped_runs_;
  absl::Time advance_time_ = absl::InfinitePast();  // The newest Advance's.
  // A run as NoteTimers last saw it.
  struct Noted {
    absl::Time timer = absl::InfiniteFuture();
    int64_t island_count = 0;
  };
  std::map<std::string, Noted> noted_;  // By run_id.
  // The timers and the sum of island_count in `noted_`.
  std::set<std::pair<absl::Time, std::string>> timers_;
  int64_t island_count_ = 0;
  std::vector<LogEntry> own_entries_;
  std::vector<std::string> reasons_;
  std::vector<std::string> warnings_;
  // Since TakeEffects: Effects::changed_servers, and runs with other names.
  std::set<std::string> changed_servers_;
  std::set<std::string> renamed_run_uids_;
};

}  // namespace atl::coordinator
