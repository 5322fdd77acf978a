#include "coordinator/client/testing/fake_island_control_client.h"

#include <algorithm>
#include <utility>

#include "base/status/status_macros.h"
#include "base/time/proto_time.h"

namespace atl::coordinator {
namespace {

constexpr absl::Duration kLease = absl::Seconds(30);

}  // namespace

FakeIslandControlClient::FakeIslandControlClient() {
  SetHeartbeatAnswer(/*features=*/0, /*coordinator_epoch=*/0);
}

void FakeIslandControlClient::SetJoinResponse(v1::JoinResponse response) {
  std::lock_guard<std::mutex> lock(mutex_);
  join_response_ = std::move(response);
}

void FakeIslandControlClient::SetPlan(v1::IslandPlan plan) {
  plans_.SetPlan(std::move(plan));
}

void FakeIslandControlClient::SetHeartbeatAnswer(uint64_t features,
                                                 int64_t coordinator_epoch,
                                                 absl::Duration next_interval) {
  std::lock_guard<std::mutex> lock(mutex_);
  heartbeat_response_.set_coordinator_features(features);
  heartbeat_response_.set_coordinator_epoch(coordinator_epoch);
  heartbeat_response_.clear_next_interval();
  if (next_interval > absl::ZeroDuration()) {
    *heartbeat_response_.mutable_next_interval() = ToProto(next_interval);
  }
  *heartbeat_response_.mutable_lease_duration() =
      ToProto(std::max(kLease, 4 * next_interval));
}

void FakeIslandControlClient::FailNext(const std::string& method,
                                       absl::Status status) {
  plans_.FailNext(method, std::move(status));
}

std::vector<v1::JoinRequest> FakeIslandControlClient::joins() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return joins_;
}

std::vector<v1::ReportProgressRequest> FakeIslandControlClient::progress()
    const {
  std::lock_guard<std::mutex> lock(mutex_);
  return progress_;
}

int FakeIslandControlClient::heartbeat_count() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<int>(heartbeats_.size());
}

std::vector<v1::HeartbeatRequest> FakeIslandControlClient::heartbeats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return heartbeats_;
}

std::optional<v1::LeaveRequest> FakeIslandControlClient::left() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return left_;
}

absl::StatusOr<v1::JoinResponse> FakeIslandControlClient::Join(
    const v1::JoinRequest& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  joins_.push_back(request);
  RETURN_IF_ERROR(plans_.NextError("Join"));
  if (join_response_.has_plan()) plans_.SetPlan(join_response_.plan());
  return join_response_;
}

absl::Status FakeIslandControlClient::ReportReady(int64_t /*commit_seq*/) {
  return plans_.NextError("ReportReady");
}

absl::StatusOr<v1::HeartbeatResponse> FakeIslandControlClient::Heartbeat(
    v1::HeartbeatRequest request) {
  std::lock_guard<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(plans_.NextError("Heartbeat"));
  heartbeats_.push_back(std::move(request));
  return heartbeat_response_;
}

absl::StatusOr<v1::IslandPlan> FakeIslandControlClient::WaitForPlan(
    const PlanPosition& after, absl::Duration timeout, std::stop_token stop) {
  return plans_.WaitForPlan(after, timeout, std::move(stop));
}

absl::Status FakeIslandControlClient::ReportProgress(
    v1::ReportProgressRequest progress) {
  std::lock_guard<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(plans_.NextError("ReportProgress"));
  progress_.push_back(std::move(progress));
  return absl::OkStatus();
}

absl::Status FakeIslandControlClient::Leave(v1::LeaveRequest leave) {
  std::lock_guard<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(plans_.NextError("Leave"));
  left_ = std::move(leave);
  return absl::OkStatus();
}

}  // namespace atl::coordinator
