// Islands as the coordinator sees them: they join, follow their plans, send
// heartbeats and report progress as often as real islands do: in one call, once
// the coordinator has told that it takes reports in heartbeats, else in two.
// They push nothing; servers report their contributions (shard_servers.h).
//
// Each island has a connection of its own, unless several share one in
// plaintext.
//
// Thread-compatible; everything happens within CallLoop::Run.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/plan.pb.h"
#include "grpcpp/channel.h"
#include "tests/benchmarks/control/call_loop.h"
#include "tests/benchmarks/control/control_plane.h"

namespace atl::benchmarks {

// Inner steps of a round, and windows that one step reads.
inline constexpr int kStepCount = 4;
inline constexpr int kStepWindowCount = 1;

struct FleetOptions {
  std::vector<std::string> run_ids;
  int island_count = 1;  // Shared by the runs: as many in each, or one less.
  // Islands that share a connection; 1 with TLS, where each has a certificate.
  int islands_per_connection = 1;
};

class IslandFleet {
 public:
  // Since the last call of ResetCounts.
  struct Counts {
    int64_t plans = 0;
    int64_t plan_bytes = 0;
    int64_t answers = 0;  // Of unary calls, without errors.
    int64_t errors = 0;
    int64_t joins = 0;
    int64_t progress = 0;   // Reports of progress that were answered.
    std::vector<double> heartbeat_ms;  // Also of those that failed.
  };

  IslandFleet(CallLoop& loop, ControlPlane& control,
              const FleetOptions& options);

  // Dials, and makes all islands ready members. Their heartbeats go on.
  absl::Status Join(absl::Duration timeout);
  // Opens every island's plan stream, and waits for its first plan.
  absl::Status Watch(absl::Duration timeout);
  void StopWatching();
  // Idle islands report nothing, and send a heartbeat every 10 s. They are idle
  // until the first call. So a machine with little time for the benchmark can
  // still take thousands of them in.
  void SetIdle(bool idle);

  static int RunOf(int island, int island_count, int run_count) {
    return static_cast<int>(int64_t{island} * run_count / island_count);
  }
  int run_of(int island) const {
    return RunOf(island, options_.island_count,
                 static_cast<int>(options_.run_ids.size()));
  }
  // The contribution of an island to a round of a fragment of its run.
  v1::ContributionInfo MakeContribution(int island,
                                        const v1::OpenRound& round) const;
  int island_count() const { return options_.island_count; }

  // The island joins again, as after a restart.
  void Rejoin(int island);
  void Leave(int island);
  // Heartbeats and reports come `factor` times as often.
  void SetLoad(double factor) { load_ = factor; }
  // Gets every plan that comes.
  void SetPlanHandler(
      std::function<void(int island, const v1::IslandPlan& plan)> handler) {
    on_plan_ = std::move(handler);
  }

  // Islands that have had a plan since ForgetPlans.
  int planned_count() const { return planned_count_; }
  void ForgetPlans();
  const Counts& counts() const { return counts_; }
  void ResetCounts() { counts_ = {}; }
  // The newest error of any call or stream.
  const absl::Status& last_error() const { return last_error_; }

 private:
  struct Island {
    std::string id;
    std::shared_ptr<grpc::Channel> channel;
    bool is_member = false;
    bool is_joining = false;
    bool has_left = false;
    bool is_ready = false;
    bool has_plan = false;
    int join_failures = 0;
    int64_t epoch = 0;
    std::string session;
    int32_t slot = 0;
    int64_t run_epoch = 0;
    int64_t first_seq = 0;  // JoinResponse.next_seq, of the first Join.
    int32_t data_shard = 0;
    bool reports_in_heartbeats = false;
    int64_t plan_revision = 0;
    CallLoop::Stream* stream = nullptr;
  };

  const std::string& RunId(int island) const {
    return options_.run_ids[run_of(island)];
  }
  template <typename Request>
  Request For(int island) const;
  // Lets islands begin to join, in order, while fewer than `joins_max_` do.
  void BeginJoins();
  void JoinNow(int island);
  void TakeJoined(int island, const v1::JoinResponse& joined);
  void ReportReady(int island, int64_t commit_seq);
  void Heartbeat(int island);
  void HeartbeatAfter(int island, absl::Duration wait);
  void ReportProgress(int island);
  void ReportAfter(int island, absl::Duration wait);
  void TakeFeatures(int island, uint64_t coordinator_features);
  void OpenStream(int island);
  void TakePlan(int island, grpc::ByteBuffer& message);
  // Counts an answer; joins again if the membership has ended.
  void TakeStatus(int island, int64_t epoch, const absl::Status& status);
  // 90 % to 110 % of the interval between heartbeats, as real islands: after a
  // burst they do not stay together.
  absl::Duration Draw(absl::Duration interval);
  // Between half and one and a half of `mean`.
  absl::Duration Jitter(absl::Duration mean);

  CallLoop& loop_;
  ControlPlane& control_;
  const FleetOptions options_;
  std::vector<Island> islands_;
  std::mt19937 random_{1};
  std::function<void(int island, const v1::IslandPlan& plan)> on_plan_;
  double load_ = 1;
  bool is_idle_ = true;
  int rhythm_ = 0;  // Calls of SetIdle; heartbeats of earlier ones end.
  bool watches_ = false;
  int begun_count_ = 0;  // Islands that have begun to join.
  // First joins that may be under way: one more for each that succeeds, half
  // for one that fails. With too many, all TLS handshakes would time out.
  int joins_max_ = 8;
  int ready_count_ = 0;
  int planned_count_ = 0;
  Counts counts_;
  absl::Status last_error_;
};

}  // namespace atl::benchmarks
