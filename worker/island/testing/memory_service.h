// A coordinator and one server in memory, for tests of whole islands. The real
// cores decide; messages, clock and disk are simulated. The server merges a
// weighted mean by outer SGD. Time passes only when a test lets a lease end.
// It tells no run_uid and no log position: islands of one test use one directory
// with several services.
// Thread-safe.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "atoll/v1/island_service.pb.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/digest.h"
#include "base/layout/held_layout.h"
#include "base/layout/layout.h"
#include "coordinator/client/island_control_client.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/core/run_event.h"
#include "coordinator/core/run_machine.h"
#include "server/client/parameter_client.h"
#include "server/core/contribution_key.h"
#include "server/core/shard_machine.h"

namespace atl::worker {

class MemoryService {
 public:
  // A run of `spec` named "test". Requires: the coordinator accepts `spec`.
  explicit MemoryService(const v1::RunSpec& spec);

  v1::Run run() const;
  std::unique_ptr<coordinator::IslandControlClient> MakeCoordinator();
  // For a process that holds the whole model, or `held`.
  std::unique_ptr<server::ParameterClient> MakeParameters();
  std::unique_ptr<server::ParameterClient> MakeParameters(
      const HeldLayout& held);

  // The next `count` pushes return `status` and store nothing. If it is
  // INVALID_ARGUMENT, the server refuses these contributions for good.
  void FailPushes(int count, absl::Status status);
  // While true, pushes wait, as on a dead link.
  void HoldPushes(bool hold);
  // Lets the leases of all islands end.
  void EndLeases();
  // Joins as another process of `island_id`.
  void Fence(const std::string& island_id);
  // The coordinator is of before heartbeats that report.
  void SetOld() {
    std::lock_guard<std::mutex> lock(mutex_);
    is_old_ = true;
  }
  // As an operator: PAUSED, ACTIVE or CANCELLED.
  void SetState(v1::RunState state);
  // While true, the coordinator hears nothing of the server, which goes on
  // serving: it stores contributions, and no round is sealed.
  void SetServerAway(bool away);

  // Parameters of the newest cut, in the model order.
  std::vector<float> parameters() const;
  std::string parameters_sha256() const;
  int64_t version() const;  // Of the fragment that is the furthest behind.
  std::vector<v1::ContributionInfo> merged() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return merged_;
  }
  std::vector<v1::Evaluation> evaluations() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return evaluations_;
  }
  // As islands reported them, in the order of the reports.
  std::vector<v1::SyncPhases> phases() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return phases_;
  }
  // The newest of any island.
  v1::HeartbeatRequest heartbeat() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return heartbeat_;
  }
  int leave_count() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return leave_count_;
  }

 private:
  friend class MemoryCoordinator;
  friend class MemoryParameters;

  struct Contribution {
    std::string bytes;      // Of all blocks, encoded.
    std::vector<bool> has;  // By block.
    bool stored = false;    // All blocks are here.
  };

  // All require mutex_.
  absl::StatusOr<coordinator::RunAnswer> Step(
      const coordinator::RunEvent& event);
  // Passes on reports and plans until nothing follows from them, and wakes all
  // who wait.
  void Settle();
  void Do(const server::ShardAction& action);
  void Prepare(const v1::Seal& seal);
  // Takes the blocks `held` of a contribution that was admitted.
  void TakeBlocks(const v1::ContributionInfo& info, const HeldLayout& held,
                  absl::Span<const char> encoded);
  Digest128 ComputeDigest(int32_t fragment, int64_t version) const;

  const v1::RunSpec spec_;
  const RunLayout layout_;

  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  absl::Time now_ = absl::UnixEpoch();
  coordinator::Coordinator coordinator_;
  coordinator::RunMachine* run_ = nullptr;
  int64_t revision_ = 0;  // Of the newest plans.
  bool server_away_ = false;
  bool is_old_ = false;
  server::ShardMachine shard_;
  // By fragment and version.
  std::map<std::pair<int32_t, int64_t>, std::vector<float>> values_;
  std::map<server::ContributionKey, Contribution> contributions_;
  bool pushes_held_ = false;
  int push_failure_count_ = 0;
  absl::Status push_failure_;
  std::vector<v1::ContributionInfo> merged_;
  std::vector<v1::Evaluation> evaluations_;
  std::vector<v1::SyncPhases> phases_;
  v1::HeartbeatRequest heartbeat_;
  int leave_count_ = 0;
};

}  // namespace atl::worker
