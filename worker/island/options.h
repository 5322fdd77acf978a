// What an island is told, what it is made of, and what it says of itself:
// plain values that every part of it shares.

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
#include "base/obs/latency_histogram.h"
#include "base/rpc/tls.h"
#include "coordinator/client/island_control_client.h"
#include "server/client/bandwidth.h"
#include "server/client/parameter_client.h"
#include "worker/engine/trainer.h"
#include "worker/island/group/device.h"
#include "worker/island/group/island_group.h"
#include "worker/island/group/island_place.h"
#include "worker/island/island_meter.h"
#include "worker/planner/planner.h"

namespace atl::worker {

// Where an island is.
struct IslandProgress {
  std::string activity;  // "train", "push", "wait", ... (ActionName).
  std::string reason;    // Why, in a few words.
  int32_t slot = -1;
  int64_t version = 0;           // Of fragment 0, newest committed.
  int64_t round_count = 0;       // Versions of the whole run; 0: not planned.
  int64_t step = 0;              // Inner steps taken, by the run's clock.
  int64_t step_count = 0;        // Of the whole run.
  int64_t token_count = 0;       // Read in this life.
  double tokens_per_second = 0;  // While training.
  double loss = 0;               // Of the last step, nats a token.
  double gradient_norm = 0;      // Of the last step, before clipping.
  int64_t sent_bytes = 0;        // Payload pushed in this life.
  int64_t received_bytes = 0;    // Payload pulled in this life.
  std::optional<v1::Evaluation> evaluation;  // The last one made here.
  // What was measured here in this life, and what it lets expect for the run's
  // own settings: an estimate, there once a push and a pull were measured.
  IslandMeasurements measured;
  std::optional<planner::Forecast> forecast;
  // The same for each of RunIslandOptions.recipes, made with `forecast`.
  std::vector<planner::Candidate> recipes;
  // Share of time spent in inner steps, from the first one's begin to the last
  // one's end; 0 before. And what it is the share of: the last two are infinite
  // future and past before.
  double utilization = 0;
  absl::Duration computing;
  absl::Time training_begin_time = absl::InfiniteFuture();
  absl::Time training_end_time = absl::InfinitePast();
  // What between the two the computing thread did or waited for beside steps.
  std::vector<Pause> pauses;
  // Of this life; known at its end.
  LatencyHistogram heartbeat_latency;
};

struct RunIslandOptions {
  std::string coordinator_address;  // host:port
  std::string run_id;
  std::string island_id;       // Kept over restarts.
  std::string data_path;       // Empty: the run's.
  std::string work_directory;  // For the SAVE; made if it is not there.
  int thread_count = 1;        // That compute, >= 1.
  // Of the island's pushes and pulls, all its processes together. A process
  // takes as large a part of them as it holds of the model.
  server::BandwidthCaps caps;
  // Connections that a large push is spread over, >= 1.
  int stream_count = server::kDefaultStreamCount;
  rpc::Security security;
  // Its ranks and processes. All processes of an island have the same options,
  // but for process_index and what a machine has of its own: data_path,
  // work_directory, thread_count. Where their links differ they may say
  // different caps, too: each takes its part of its own.
  IslandPlace place;
  // Of several processes: what keeps strangers out where they meet, beside the
  // key in `security` (rendezvous.h, RendezvousOptions).
  std::string rendezvous_secret_path;
  std::string machine_secret_path;
  std::string program_version;
  // What else this link could be used for, to be told of: IslandProgress. What
  // their presets point to must outlive the progress.
  std::vector<Recipe> recipes;
  std::stop_token stop;  // Once: leave cleanly.
  std::stop_token stop_at_once;
  // Called on the computing thread, after each step and at each change of
  // activity. May be empty. Must not block.
  std::function<void(const IslandProgress&)> on_progress;
  absl::Duration join_patience = absl::Minutes(5);
  absl::Duration patience = absl::Hours(1);  // With a coordinator that is away.
};

// What RunIsland is made of, for tests.
struct IslandLinks {
  std::function<absl::StatusOr<v1::Run>()> get_run;
  coordinator::IslandControlClient* coordinator = nullptr;
  std::function<absl::StatusOr<std::unique_ptr<server::ParameterClient>>(
      const v1::RunSpec& spec, const HeldLayout& held)>
      make_parameter_client;
  FileSystem* file_system = nullptr;
  // What trains; by itself one rank.
  std::function<absl::StatusOr<std::unique_ptr<engine::Trainer>>(
      const engine::TrainerOptions&)>
      make_trainer = engine::Trainer::Create;
  // What the island says that it computes on.
  std::function<v1::Device()> describe_device = DescribeCpu;
  // Of an island of several processes; null: there is one. All but process 0
  // need no coordinator and no run.
  IslandGroup* group = nullptr;
  // What keeps this island from training a run, before anything is made; may be
  // empty.
  std::function<absl::Status(const v1::RunSpec& spec)> check_run;
};

}  // namespace atl::worker
