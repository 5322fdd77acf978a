// A minimal coordinator with servers in memory, for tests of whole islands:
// strict synchronous rounds, uniform mean, outer SGD. Thread-safe.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "atoll/v1/plan.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/layout/digest.h"
#include "base/layout/held_layout.h"
#include "base/layout/layout.h"
#include "coordinator/client/island_control_client.h"
#include "server/client/parameter_client.h"

namespace atl::worker {

class MemoryService {
 public:
  // A run of `spec` named "test". Requires: the layout is valid.
  explicit MemoryService(const v1::RunSpec& spec);

  v1::Run run() const;
  std::unique_ptr<coordinator::IslandControlClient> MakeCoordinator();
  // For a process that holds the whole model, or `held`.
  std::unique_ptr<server::ParameterClient> MakeParameters();
  std::unique_ptr<server::ParameterClient> MakeParameters(
      const HeldLayout& held);

  // The next `count` pushes return `status` and store nothing.
  void FailPushes(int count, absl::Status status);
  // While true, pushes wait, as on a dead link.
  void HoldPushes(bool hold);
  // Forgets all members, as if all leases had ended.
  void EndLeases();
  // As if another process joined as `island_id`.
  void Fence(const std::string& island_id);
  void SetState(v1::RunState state);
  // Plans give the server no address; it keeps serving.
  void SetServerAway(bool away);
  // Later contributions are merged, but reported with this outcome.
  void TellOutcomes(v1::Outcome outcome, std::string reason);

  // Parameters of the newest cut, in the model order.
  std::vector<float> parameters() const;
  std::string parameters_sha256() const;
  int64_t version() const;
  std::vector<v1::ContributionInfo> merged() const;
  std::vector<v1::Evaluation> evaluations() const;
  int leave_count() const;
  // Waits until every fragment is at `version` or later.
  void AwaitVersion(int64_t version);

 private:
  friend class MemoryCoordinator;
  friend class MemoryParameters;

  struct Member {
    int32_t slot = 0;
    int64_t epoch = 0;
    bool ready = false;
    bool known = true;
    int64_t seq_max = 0;
    std::vector<v1::ContributionOutcome> outcomes;
  };
  struct Stored {
    v1::ContributionInfo info;
    std::vector<float> elements;
  };
  // A contribution whose processes have not all pushed yet.
  struct Partial {
    Stored stored;
    std::vector<bool> has;    // By element.
    std::vector<char> bytes;  // The whole contribution, encoded.
  };

  // All require mutex_.
  v1::IslandPlan PlanFor(const Member& member) const;
  void Changed();
  void OpenIfDue();
  void MergeIfComplete(int32_t fragment);
  bool Complete() const;

  const v1::RunSpec spec_;
  const RunLayout layout_;

  mutable std::mutex mutex_;
  mutable std::condition_variable_any changed_;
  int64_t revision_ = 1;
  v1::RunState state_ = v1::RUN_STATE_ACTIVE;
  std::map<std::string, Member> members_;
  std::vector<std::vector<float>> values_;  // By fragment.
  std::vector<int64_t> versions_;           // By fragment.
  std::vector<int64_t> commit_seqs_;        // By fragment.
  std::vector<std::vector<int32_t>> open_;  // Expected slots, by fragment.
  std::vector<std::map<int32_t, Stored>> stored_;    // By fragment, slot.
  std::vector<std::map<int32_t, Partial>> partial_;  // By fragment, slot.
  int64_t commit_seq_ = 0;
  bool pushes_held_ = false;
  int push_failure_count_ = 0;
  absl::Status push_failure_;
  std::vector<v1::ContributionInfo> merged_;
  std::vector<v1::Evaluation> evaluations_;
  int leave_count_ = 0;
  bool server_away_ = false;
  v1::Outcome told_outcome_ = v1::OUTCOME_MERGED;
  std::string told_reason_;
};

}  // namespace atl::worker
