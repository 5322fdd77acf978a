// A coordinator under load: islands, servers, rounds and the probe.
//
// In a paced round an island's contributions reach all servers at one moment,
// between 0.6 and 0.8 of the round's time, one island after the other.
//
// Thread-compatible.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/run.pb.h"
#include "grpcpp/channel.h"
#include "tests/benchmarks/control/call_loop.h"
#include "tests/benchmarks/control/control_plane.h"
#include "tests/benchmarks/control/island_fleet.h"
#include "tests/benchmarks/control/shard_servers.h"

namespace atl::benchmarks {

// Islands of a run: further ones are in further runs.
inline constexpr int kRunIslandsMax = 1000;

struct LoadOptions {
  std::string directory;  // Created, and removed at the end.
  std::string coordinator_binary;
  int island_count = 100;
  int run_count = 0;  // 0: as few as kRunIslandsMax lets.
  int fragment_count = 1;
  int server_count = 2;
  bool tls = false;
  int islands_per_connection = 1;
  // Rounds before the measured ones. They fill the tables of outcomes.
  int filled_round_count = 64;
  bool elastic = false;                            // Otherwise strict.
  absl::Duration patience = absl::Minutes(10);  // For one round.
};

// The counts of a span of time.
struct Measures {
  double wall_s = 0;
  double coordinator_cpu_s = 0;
  double generator_cpu_s = 0;
  std::vector<double> heartbeat_ms;
  std::vector<double> probe_ms;
  int64_t island_plans = 0;
  int64_t plan_bytes = 0;  // Of all plans, the servers' too.
  int64_t messages = 0;    // Calls and plans.
  int64_t errors = 0;      // Of islands' calls.
  // Seconds from a round's OPEN to the last fragment's COMMIT, as the first
  // server sees them, in each run.
  std::vector<std::vector<double>> round_s;
  double rss_mib = 0;      // The most of the coordinator.
};

class ControlLoad {
 public:
  explicit ControlLoad(const LoadOptions& options);

  // Starts everything. Afterwards the tables are filled, and every island has
  // a plan.
  absl::Status Start();

  // Plays `count` rounds, one every `pace`, or as fast as they go if it is 0.
  // DEADLINE_EXCEEDED: a round took longer than the patience.
  absl::Status PlayRounds(int count, absl::Duration pace);
  // Lets `count` further rounds begin.
  void BeginRounds(int count, absl::Duration pace);
  // Waits until all rounds that began are committed on every server.
  absl::Status FinishRounds();
  bool HasFinished() const;

  void BeginMeasuring();
  Measures Measure();
  // What an island that joins and watches takes of the coordinator's resident
  // memory, in KiB, before the first round.
  double island_kib() const { return island_kib_; }

  CallLoop& loop() { return loop_; }
  ControlPlane& control() { return control_; }
  IslandFleet& islands() { return *islands_; }
  ShardServer& server(int index) { return *servers_[index]; }
  // "run-0".
  const std::string& run_id(int index) const { return run_ids_[index]; }
  v1::RunSpec MakeSpec(int island_count) const;
  absl::Status CreateRun(const std::string& run_id, const v1::RunSpec& spec);

 private:
  void TakeOpen(const std::string& run_id, const v1::OpenRound& round);
  void TakeCommits(const std::string& run_id);
  int FindRun(const std::string& run_id) const;  // -1: it is not of the load.
  void PushAll(int run, const v1::OpenRound& round);
  void Probe();
  void WatchMemory();

  const LoadOptions options_;
  // First, so that it outlives what its callbacks use.
  ControlPlane control_;
  CallLoop loop_;
  std::vector<std::string> run_ids_;
  std::vector<std::unique_ptr<ShardServer>> servers_;
  std::unique_ptr<IslandFleet> islands_;
  std::shared_ptr<grpc::Channel> operator_;
  std::shared_ptr<grpc::Channel> probe_;

  int64_t first_version_ = 0;  // Of the rounds that BeginRounds let begin.
  int64_t end_version_ = 0;    // Rounds from this version on wait.
  absl::Time begin_ = absl::InfinitePast();  // Of first_version_.
  absl::Duration pace_;
  std::vector<std::pair<int, v1::OpenRound>> waiting_;  // Run, round.

  absl::Time measured_from_;
  double coordinator_cpu_ = 0;
  double generator_cpu_ = 0;
  int64_t rss_bytes_ = 0;
  double island_kib_ = 0;
  std::vector<double> probe_ms_;
  std::vector<std::map<int64_t, absl::Time>> opened_;  // By run, version.
  std::vector<std::vector<double>> round_s_;           // By run.
};

}  // namespace atl::benchmarks
