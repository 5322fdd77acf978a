// An island's options, dependencies and progress. Plain values.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/io/file_system.h"
#include "base/layout/held_layout.h"
#include "base/metrics/metrics.h"
#include "base/obs/latency_histogram.h"
#include "base/rpc/certificates/tls.h"
#include "coordinator/client/island_control_client.h"
#include "server/client/bandwidth.h"
#include "server/client/parameter_client.h"
#include "worker/data/fetch/open_data.h"
#include "worker/engine/trainer.h"
#include "worker/island/group/device.h"
#include "worker/island/group/island_group.h"
#include "worker/island/group/island_place.h"
#include "worker/island/island_control.h"
#include "worker/island/island_trainer.h"
#include "worker/island/meter/contribution_tally.h"
#include "worker/island/meter/island_meter.h"
#include "worker/planner/planner.h"

namespace atl::worker {

// After the loss of a process RunIsland starts a new attempt, and all counters
// start again.
struct IslandProgress {
  std::string activity;  // "train", "push", "wait", ... (ActionName).
  std::string reason;    // For people.
  int32_t slot = -1;
  // At the end, process 0's: the run is complete, and the island was a member
  // until then.
  bool is_complete = false;
  int64_t version = 0;           // Newest committed version of fragment 0.
  int64_t round_count = 0;       // Versions of the whole run; 0: not planned.
  int64_t step = 0;              // Inner steps taken, by the run's clock.
  int64_t step_count = 0;        // Inner steps of the whole run.
  int64_t token_count = 0;       // Tokens trained on.
  double tokens_per_second = 0;  // While training.
  std::optional<double> loss;    // The last step's, nats a token, if known.
  double gradient_norm = 0;      // The last step's, before clipping.
  int64_t sent_bytes = 0;        // Payload pushed.
  int64_t received_bytes = 0;    // Payload pulled.
  int64_t saved_bytes = 0;       // Local checkpoints, written by process 0.
  std::optional<v1::Evaluation> evaluation;  // The last one made here.
  ContributionTally contributions;           // Process 0's, in this attempt.
  // The forecast is for the run's settings. It is made once, after the first
  // push and pull.
  IslandMeasurements measured;
  std::optional<planner::Forecast> forecast;
  // The forecasts for RunIslandOptions.recipes, made with `forecast`.
  std::vector<planner::Candidate> recipes;
  // Training time runs from the first inner step's begin to the last one's end.
  // Steps take `computing` of it; `utilization` is that share, in [0, 1].
  double utilization = 0;
  absl::Duration computing;
  absl::Time training_begin_time = absl::InfiniteFuture();
  absl::Time training_end_time = absl::InfinitePast();
  // Other activities and waits of the training thread in that time.
  std::vector<Pause> pauses;
  // Set at the end of the attempt.
  LatencyHistogram heartbeat_latency;
};

// The reasons of RunIsland's errors for a run that has ended.
inline constexpr char kRunCompleted[] = "RUN_COMPLETED";
inline constexpr char kRunCancelled[] = "RUN_CANCELLED";

struct RunIslandOptions {
  std::string coordinator_address;  // host:port
  std::string run_id;
  std::string island_id;       // The same after a restart.
  // The rights that this machine's user gave (worker/data/local_data.h).
  std::string data_path;                // Empty: not given.
  std::vector<std::string> data_roots;  // Folders that are allowed for good.
  // Where data by URL is kept; shared by the islands of a machine.
  std::string data_cache_directory;
  int64_t data_cache_bytes_max = kDataCacheBytesDefault;
  StoreOpener open_data_store = OpenStoreOfUrl;
  std::string work_directory;  // For the local checkpoint; created if missing.
  int thread_count = 1;        // Compute threads, >= 1.
  // Limits for all processes together. A process has the share of its own caps
  // that it has of the model. Downloads of data by URL have the same cap once
  // more, in equal shares.
  server::BandwidthCaps caps;
  // Connections for one large push, >= 1.
  int stream_count = server::kDefaultStreamCount;
  rpc::Security security;
  // All processes of an island have the same options, except for process_index,
  // data_path, data_roots, data_cache_*, work_directory, thread_count and `caps`.
  IslandPlace place;
  // Socket to listen at for a trainer in another process; empty: our engine.
  std::string trainer_path;
  // As in RendezvousOptions (group/rendezvous.h).
  std::string rendezvous_secret_path;
  std::string machine_secret_path;
  std::string program_version;
  // Settings to forecast too (IslandProgress::recipes). Their presets must
  // outlive the progress.
  std::vector<Recipe> recipes;
  std::stop_token stop;          // Leaves the run cleanly.
  std::stop_token stop_at_once;  // Ends without a clean leave.
  // Requested before `stop`: another process will continue as this island. In a
  // strict run it then stays a member: `stop` ends it without a leave.
  std::stop_token stop_for_restart;
  // The wishes of the island's user, to process 0; null: none. Must outlive
  // RunIsland, which is the only listener.
  IslandControl* control = nullptr;
  // Returns an error if this island must not train the run. Called before
  // anything is created, in process 0. May be empty.
  std::function<absl::Status(const v1::RunSpec& spec)> check_run;
  // Gets the island's metrics and its readiness; null: none. Must outlive
  // RunIsland. Process 0 has metrics of training; other processes only tell
  // that they follow it.
  Metrics* metrics = nullptr;
  // Runs on the training thread before each action. May be empty. Never blocks.
  std::function<void(const IslandProgress&)> on_progress;
  // Longest wait for an unreachable coordinator, before and after the join.
  absl::Duration join_patience = absl::Minutes(5);
  absl::Duration patience = absl::Hours(1);
  // Longest wait for a run that does not exist yet.
  absl::Duration wait_for_run;
};

// Joins the run for a trainer that must know its place before it says hello,
// and keeps the place. Errors as IslandService.Join; CANCELLED: stopped.
using JoinFirst = std::function<absl::StatusOr<v1::JoinResponse>()>;

// Dependencies of RunIsland, for tests.
struct IslandLinks {
  std::function<absl::StatusOr<v1::Run>()> get_run;
  coordinator::IslandControlClient* coordinator = nullptr;
  std::function<absl::StatusOr<std::unique_ptr<server::ParameterClient>>(
      const v1::Run& run, const HeldLayout& held)>
      make_parameter_client;
  FileSystem* file_system = nullptr;
  std::function<absl::StatusOr<std::unique_ptr<engine::Trainer>>(
      const engine::TrainerOptions&)>
      make_trainer = engine::Trainer::Create;  // One rank.
  // If set, makes the trainer instead: it is not our engine.
  std::function<absl::StatusOr<std::unique_ptr<IslandTrainer>>(
      const v1::Run& run, const JoinFirst& join)>
      make_island_trainer;
  std::function<v1::Device()> describe_device = DescribeCpu;
  // Null: one process. Processes other than 0 need no get_run or coordinator.
  IslandGroup* group = nullptr;
  // For make_island_trainer, which may call it once. IslandRunner sets it.
  JoinFirst join_first;
  // Called from any thread when a file that training waits for is here, or
  // cannot come. IslandRunner sets it. May be empty.
  std::function<void()> data_came;
  // Returns an error if this island cannot train the run. Called before
  // anything is created. May be empty.
  std::function<absl::Status(const v1::RunSpec& spec)> check_run;
};

}  // namespace atl::worker
