// A whole parameter server: storage, threads, the gRPC service and the agent
// that follows the coordinator. Thread-safe after Start.
//
//   ParameterServer::Options options;
//   ASSIGN_OR_RETURN(auto server,
//                    ParameterServer::Start(options, environment));
//   server->port();

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "atoll/v1/server_service.pb.h"
#include "base/io/file_system.h"
#include "base/metrics/metrics.h"
#include "base/rpc/listener.h"
#include "base/sync/mutex.h"
#include "coordinator/client/server_control_client.h"
#include "server/core/coordinator_fence.h"
#include "server/directory/server_directory.h"
#include "server/live_merge/receive_budget.h"
#include "server/metrics/server_metrics.h"
#include "server/mirror/checkpoint_mirror.h"
#include "server/service/parameter_service.h"
#include "server/shard/shard.h"
#include "server/store/records/log_record_store.h"
#include "server/store/version_image.h"

namespace atl::server {

class ParameterServer final {
 public:
  struct Options {
    std::string server_id;  // [a-z0-9-]{1,63}
    std::string data_dir;
    rpc::ListenerOptions listener;
    // host:port at which islands reach it, with the placeholders of
    // server/advertise.h; empty: the listener's.
    std::string advertise;
    // Threads that merge, >= 1.
    int merge_thread_count = 1;
    // Threads that sync contributions, >= 1.
    int finish_thread_count = 2;
    // Memory for the runs' newest versions and the next; the rest is in files.
    int64_t image_bytes_max = int64_t{1} << 30;
    // Memory for blocks that wait to be merged at level ISLAND, all runs
    // together. When it is used up, islands are admitted one after the other.
    int64_t live_merge_bytes_max = int64_t{1} << 30;
    StreamLimits stream_limits;
    // Where checkpoints of runs with checkpoint.mirror are copied; none: they
    // are not, and reports say so.
    std::optional<CheckpointMirrorOptions> mirror;
  };
  // Its dependencies, which must outlive it.
  struct Environment {
    FileSystem& fs;
    coordinator::ServerControlClient& coordinator;
    std::function<absl::StatusOr<v1::Run>(const std::string& run_id)> get_run;
    Metrics& metrics;
    // Measures the machine; never waits. Null: reports have no health.
    std::function<v1::ServerHealth()> health = nullptr;
  };

  // Recovers, listens, and starts to follow the coordinator, which may be away.
  // Metrics and gRPC health are ready from then until Drain or Stop: every shard
  // in the directory is open, or has a fault (server/DESIGN.md, Health).
  // INVALID_ARGUMENT: an option is wrong. FAILED_PRECONDITION: the directory is
  // another server's, or another process uses it. Otherwise as ServerDirectory
  // and the listener.
  static absl::StatusOr<std::unique_ptr<ParameterServer>> Start(
      const Options& options, const Environment& environment);

  ~ParameterServer();

  int port() const { return rpc_->port(); }
  const std::string& address() const { return rpc_->address(); }
  int64_t incarnation() const { return directory_->incarnation(); }
  // Health name: NOT_SERVING if any shard here has stopped
  // (kShardsHealth/RUN_ID: a run's shard). A restart may help; other runs are
  // still served.
  static constexpr char kShardsHealth[] = "atoll.shards";
  // Bytes of blocks that wait to be merged at level ISLAND.
  const ReceiveBudget& receive_budget() const { return *held_; }
  const RunAccess& access() const { return access_; }

  // Ends the server as planned. Refuses further streams, and ends those in
  // progress with UNAVAILABLE, STOPPING. Pushes whose blocks are all here get
  // their outcome first, until `deadline`. Then makes durable the contributions
  // that were acknowledged at level PROCESS, and stops. An error is the disk's:
  // these contributions survive the process, but not a loss of power.
  absl::Status Drain(absl::Time deadline);
  // Ends the streams, then the rest. Idempotent.
  void Stop();

  // Waits up to `timeout`. Returns an error if the server must end: a newer
  // process of this server_id has registered, or the coordinator refuses it.
  absl::Status WaitForEnd(absl::Duration timeout);

  // Null if no shard of the run is here, or if it is being restored.
  std::shared_ptr<Shard> FindShard(const std::string& run_id);

 private:
  // A known run: its shard, or why the shard is missing.
  struct Entry {
    std::unique_ptr<LogRecordStore> records;  // The shard's.
    std::shared_ptr<Shard> shard;
    int32_t shard_number = 0;
    std::string directory;  // The run's.
    // The members below are for a run without a shard. Its Run.run_uid, if
    // known.
    std::string run_uid;
    int64_t run_epoch = 0;                // Newest known.
    std::optional<v1::Fault> fault;       // Why there is no shard.
    std::optional<v1::Fault> plan_fault;  // Why the newest plan is not its.
    bool is_deleted = false;              // Its files must be deleted.
    // It goes back to an earlier cut. Until that has ended, `records` are in
    // use, and run_epoch is a lower one than the plan's.
    bool is_restoring = false;
  };
  // A deleted run whose directory still has its name.
  struct Deletion {
    std::string run_id;
    std::shared_ptr<Shard> shard;  // Kept while streams or actions hold it.
    std::string logged;            // Why it failed last.
  };

  // A run that goes back to the cut of `plan`.
  struct Restore {
    v1::ServerRunPlan plan;
    std::shared_ptr<Shard> shard;  // Kept while streams or actions hold it.
  };

  ParameterServer(const Options& options, const Environment& environment,
                  std::unique_ptr<ServerDirectory> directory);

  absl::Status Recover();
  void OpenShard(FoundShard found);
  // Opens a shard, or finds out why it cannot be opened. `fault` and
  // `failed_run_epoch`: as Shard::Create.
  Entry MakeEntry(FoundShard found,
                  const absl::Status& fault = absl::OkStatus(),
                  int64_t failed_run_epoch = 0);
  // As ServiceContext::find_shard.
  absl::StatusOr<std::shared_ptr<Shard>> FindForCall(const std::string& run_id);
  // Makes the shard that a plan places here. A full disk, or no descriptor left:
  // an error, and no entry.
  absl::Status CreateShard(const v1::ServerRunPlan& plan, const v1::Run& run);
  ShardResources Resources();

  // --- The agent ---
  void FollowPlan(std::stop_token stop);
  void SendReports(std::stop_token stop);
  using Shards = std::vector<std::shared_ptr<Shard>>;
  // Registers, with retries; returns false if the agent must stop.
  bool Register(std::stop_token stop);
  // True if no run can be pulled from here.
  bool HoldsNothing();
  // Takes the coordinator's answer in. Errors as CoordinatorFence::Take.
  absl::Status TakeAnswer(const v1::RegisterServerResponse& response);
  // An answer of the coordinator has these features.
  void NoteFeatures(uint64_t features) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True if no plan came, with `status`, because the stream has ended or is
  // stuck: registering opens another.
  bool TakeStreamLost(const absl::Status& status);
  // Takes the plan in, unless it is not this coordinator's newest.
  void TakePlan(const v1::ServerPlan& plan);
  void ApplyPlan(const v1::ServerPlan& plan);
  Shards ShardsWithout(const v1::ServerPlan& plan);
  // False if it must be retried.
  bool ApplyRunPlan(const v1::ServerRunPlan& plan);
  // Gets the run and makes its shard.
  absl::Status PlaceRun(const v1::ServerRunPlan& plan);
  // Closes the shards of the plan's deleted runs.
  void BeginDeletions(const v1::ServerPlan& plan);
  // Deletes closed shards that are no longer in use.
  void FinishDeletions();
  // False if it must be tried again.
  bool FinishDeletion(Deletion& deletion);
  // True if the shard here must go back to the plan's cut first. Closes it.
  bool BeginRestore(const v1::ServerRunPlan& plan);
  // Restores closed shards that are no longer in use, on low_queue_.
  void ContinueRestores();
  void RunRestore(const v1::ServerRunPlan& plan);
  // Goes back to the plan's cut; gets versions that are not here from the
  // mirror.
  absl::Status RollBack(const v1::ServerRunPlan& plan, RecordStore& records,
                        const records::RunRecord& record);
  v1::ShardReport FaultReport(const std::string& run_id, const Entry& entry);
  absl::Status ReportOnce();
  void ShowHealth();
  // Makes durable what shards acknowledged at level PROCESS.
  absl::Status FlushShards();
  // Health and metrics of the whole server.
  void ShowReady(const absl::Status& ready);
  void End(const absl::Status& status);

  const Options options_;
  const Environment environment_;
  const std::unique_ptr<ServerDirectory> directory_;

  ServerMetrics metrics_;
  TilePool tile_pool_;
  RoundMerger merger_;
  WorkQueue merge_queue_;
  WorkQueue disk_queue_;
  WorkQueue finish_queue_;
  WorkQueue low_queue_;
  WorkQueue budget_queue_;  // Tells streams of level ISLAND of free memory.
  const std::shared_ptr<ImagePool> images_;
  const std::shared_ptr<ReceiveBudget> held_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::ServerPlan> unfinished_plan_ ABSL_GUARDED_BY(mutex_);
  int64_t plan_revision_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t change_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t report_seq_ ABSL_GUARDED_BY(mutex_) = 0;
  bool registered_ ABSL_GUARDED_BY(mutex_) = false;
  // The coordinator has forgotten what changes are based on: no report has begun
  // since the newest registration.
  bool has_to_report_whole_ ABSL_GUARDED_BY(mutex_) = false;
  // This registration has brought a plan, and the newest one was taken.
  bool plan_is_current_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration lease_ ABSL_GUARDED_BY(mutex_) = absl::Seconds(15);
  // The newest answer's; not set before the first answer.
  std::optional<uint64_t> coordinator_features_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status end_ ABSL_GUARDED_BY(mutex_);

  RunAccess access_{SystemClock()};
  StreamWatchdog push_watchdog_;
  StreamWatchdog pull_watchdog_;
  std::unique_ptr<ParameterServiceImpl> service_;
  std::unique_ptr<rpc::RpcServer> rpc_;
  std::string advertised_;  // Set by Start.
  // The shown health by name. Used by Start, then by report_thread_.
  std::map<std::string, bool> shown_health_;
  // Used by plan_thread_.
  std::optional<CoordinatorFence> fence_;
  std::string logged_plan_;  // Why the last plan was not taken.
  std::vector<Deletion> deletions_;
  std::vector<Restore> restores_;
  // Null: none. Ends with this object, before what its jobs use, and not in
  // Stop: a mounted directory that hangs must not hold back a drain.
  std::unique_ptr<CheckpointMirror> mirror_;
  std::jthread plan_thread_;
  std::jthread report_thread_;
};

}  // namespace atl::server
