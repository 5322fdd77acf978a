#include "coordinator/client/testing/fake_island_control_client.h"

#include <utility>

#include "base/status/status_macros.h"

namespace atl::coordinator {

void FakeIslandControlClient::SetJoinResponse(v1::JoinResponse response) {
  std::lock_guard<std::mutex> lock(mutex_);
  join_response_ = std::move(response);
}

void FakeIslandControlClient::SetPlan(v1::IslandPlan plan) {
  plans_.SetPlan(std::move(plan));
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
  return heartbeat_count_;
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

absl::StatusOr<absl::Duration> FakeIslandControlClient::Heartbeat() {
  std::lock_guard<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(plans_.NextError("Heartbeat"));
  ++heartbeat_count_;
  return absl::Seconds(30);
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
