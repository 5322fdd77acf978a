// An in-memory IslandControlClient, for tests of islands.
//
// A test sets Join's answer, the newest plan and the errors of calls, and reads
// what was reported. Thread-safe.

#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "coordinator/client/island_control_client.h"
#include "coordinator/client/testing/fake_plan_source.h"

namespace atl::coordinator {

class FakeIslandControlClient : public IslandControlClient {
 public:
  FakeIslandControlClient();

  // Sets Join's answer. Join makes its plan the newest.
  void SetJoinResponse(v1::JoinResponse response);
  // Sets the newest plan; wakes WaitForPlan.
  void SetPlan(v1::IslandPlan plan);
  // The answers to heartbeats have these features and this coordinator epoch;
  // and `next_interval`, if it is positive. At first they have neither.
  void SetHeartbeatAnswer(uint64_t features, int64_t coordinator_epoch,
                          absl::Duration next_interval = absl::ZeroDuration());
  // Queues an error for a later call of `method`: "Join", "ReportReady",
  // "Heartbeat", "WaitForPlan", "ReportProgress" or "Leave". A Heartbeat that
  // fails is not among heartbeats().
  void FailNext(const std::string& method, absl::Status status);

  std::vector<v1::JoinRequest> joins() const;
  std::vector<v1::ReportProgressRequest> progress() const;
  std::vector<v1::HeartbeatRequest> heartbeats() const;
  int heartbeat_count() const;
  // The newest Leave that was answered; nullopt: none was.
  std::optional<v1::LeaveRequest> left() const;

  absl::StatusOr<v1::JoinResponse> Join(
      const v1::JoinRequest& request) override;
  absl::Status ReportReady(int64_t commit_seq) override;
  absl::StatusOr<v1::HeartbeatResponse> Heartbeat(
      v1::HeartbeatRequest request) override;
  absl::StatusOr<v1::IslandPlan> WaitForPlan(const PlanPosition& after,
                                             absl::Duration timeout,
                                             std::stop_token stop) override;
  absl::Status ReportProgress(v1::ReportProgressRequest progress) override;
  absl::Status Leave(v1::LeaveRequest leave) override;

 private:
  FakePlanSource<v1::IslandPlan> plans_;

  mutable std::mutex mutex_;
  // Guarded by mutex_.
  v1::JoinResponse join_response_;
  std::vector<v1::JoinRequest> joins_;
  std::vector<v1::ReportProgressRequest> progress_;
  std::optional<v1::LeaveRequest> left_;
  std::vector<v1::HeartbeatRequest> heartbeats_;
  v1::HeartbeatResponse heartbeat_response_;
};

}  // namespace atl::coordinator
