// Parameter servers as the coordinator sees them: each holds one shard of every
// run, follows its plan and reports when something has changed, as a real
// server does. It merges one fragment of a run after the other, and makes one
// commit durable after the other: each takes the work time.
//
// Thread-compatible; everything happens within CallLoop::Run.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/server_service.pb.h"
#include "coordinator/client/plan_parts.h"
#include "grpcpp/channel.h"
#include "tests/benchmarks/control/call_loop.h"
#include "tests/benchmarks/control/control_plane.h"

namespace atl::benchmarks {

class ShardServer {
 public:
  // Since the last call of ResetCounts.
  struct Counts {
    int64_t plans = 0;
    int64_t plan_bytes = 0;
    int64_t reports = 0;  // Messages.
    int64_t report_bytes = 0;
    double report_ms_max = 0;  // The slowest message.
  };

  ShardServer(CallLoop& loop, int index, int fragment_count);

  absl::Status Dial(ControlPlane& control);
  // Registers, follows the plan and reports.
  void Start() { Register(); }

  // 0: all that can be done is done at once.
  void SetWorkTime(absl::Duration work_time) { work_time_ = work_time; }

  // Takes a whole contribution. Ignores one that was decided.
  void Store(const std::string& run_id, const v1::ContributionInfo& info);
  // Restarts without the newest `part` of the contributions that it holds.
  // Returns what it has lost.
  std::vector<v1::ContributionInfo> RestartWithout(double part);
  int64_t incarnation() const { return incarnation_; }

  // Called for every round that a plan opens, once.
  void SetOpenHandler(std::function<void(const std::string& run_id,
                                         const v1::OpenRound& round)>
                          handler) {
    on_open_ = std::move(handler);
  }
  // Called after a plan has changed a version of the run.
  void SetCommitHandler(
      std::function<void(const std::string& run_id)> handler) {
    on_commit_ = std::move(handler);
  }
  // The smallest version of a fragment of the run; -1: not known.
  int64_t FindVersion(const std::string& run_id) const;

  const Counts& counts() const { return counts_; }
  void ResetCounts() { counts_ = {}; }
  const absl::Status& last_error() const { return last_error_; }

 private:
  using Key = std::tuple<int32_t, int32_t, int64_t>;  // Fragment, slot, seq.
  using Round = std::tuple<int32_t, int64_t, int64_t>;  // Fragment, version, attempt.

  struct Shard {
    std::string run_uid;
    int64_t run_epoch = 0;
    int32_t number = 0;
    int64_t applied = 0;    // commit_seq.
    int64_t persisted = 0;  // commit_seq.
    std::vector<int64_t> versions;
    std::map<Key, v1::ContributionInfo> stored;
    // As server/core/shard_machine.h: of the newest report, 0: a whole one is
    // due, and what has changed since.
    int64_t base_report_seq = 0;
    std::set<Key> changed;
    std::deque<Key> arrivals;  // Of `stored`, and decided ones.
    // Sealed rounds, and what they still lack here.
    std::map<Round, std::set<Key>> awaited;
    std::set<Round> merging;
    std::set<Round> prepared;
    std::set<Round> opened;
    bool works = false;
  };

  void Register();
  void Follow();
  void TakePlan(const v1::ServerPlan& plan);
  void TakeRunPlan(const v1::ServerRunPlan& plan);
  // Merges and persists, one of each after each work time.
  void Work(const std::string& run_id);
  void SetChanged();
  void Report();
  void SendPart();
  void ReportSometimes(int64_t life);
  v1::ShardReport MakeReport(const std::string& run_id, Shard& shard) const;
  // The coordinator may lack the newest reports.
  void ReportWhole() {
    for (auto& [run_id, shard] : shards_) shard.base_report_seq = 0;
  }
  void RegisterSoon();

  CallLoop& loop_;
  const std::string server_id_;
  const std::string directory_id_;
  const int fragment_count_;
  std::shared_ptr<grpc::Channel> channel_;
  std::function<void(const std::string& run_id, const v1::OpenRound& round)>
      on_open_;
  std::function<void(const std::string& run_id)> on_commit_;
  absl::Duration work_time_;
  int64_t incarnation_ = 1;
  int64_t life_ = 0;  // Registrations; what an older one began is ignored.
  bool is_registered_ = false;
  CallLoop::Stream* stream_ = nullptr;
  coordinator::PlanJoiner joiner_;
  int64_t plan_revision_ = 0;
  std::map<std::string, Shard> shards_;  // By run_id.
  bool is_changed_ = false;
  int64_t report_seq_ = 0;
  bool takes_changes_ = false;  // The coordinator does (kReportsOfChanges).
  std::deque<v1::ReportShardsRequest> parts_;  // Of the report under way.
  Counts counts_;
  absl::Status last_error_;
};

}  // namespace atl::benchmarks
