#include "coordinator/client/fake_coordinator_client.h"

#include <utility>

#include "base/status/status_macros.h"

namespace atl::coordinator {

void FakeCoordinatorClient::SetJoinResponse(v1::JoinResponse response) {
  std::lock_guard<std::mutex> lock(mutex_);
  join_response_ = std::move(response);
}

void FakeCoordinatorClient::SetPlan(v1::IslandPlan plan) {
  std::lock_guard<std::mutex> lock(mutex_);
  plan_ = std::move(plan);
  changed_.notify_all();
}

void FakeCoordinatorClient::FailNext(const std::string& method,
                                     absl::Status status) {
  std::lock_guard<std::mutex> lock(mutex_);
  errors_[method].push_back(std::move(status));
  changed_.notify_all();
}

std::vector<v1::JoinRequest> FakeCoordinatorClient::joins() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return joins_;
}

std::vector<int64_t> FakeCoordinatorClient::ready() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return ready_;
}

std::vector<v1::ReportProgressRequest> FakeCoordinatorClient::progress() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return progress_;
}

int FakeCoordinatorClient::heartbeat_count() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return heartbeat_count_;
}

bool FakeCoordinatorClient::left() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return left_;
}

absl::Status FakeCoordinatorClient::NextError(const std::string& method) {
  const auto found = errors_.find(method);
  if (found == errors_.end() || found->second.empty()) return absl::OkStatus();
  absl::Status status = found->second.front();
  found->second.pop_front();
  return status;
}

absl::StatusOr<v1::JoinResponse> FakeCoordinatorClient::Join(
    const v1::JoinRequest& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  joins_.push_back(request);
  RETURN_IF_ERROR(NextError("Join"));
  if (join_response_.has_plan()) plan_ = join_response_.plan();
  changed_.notify_all();
  return join_response_;
}

absl::Status FakeCoordinatorClient::ReportReady(int64_t commit_seq) {
  std::lock_guard<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(NextError("ReportReady"));
  ready_.push_back(commit_seq);
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> FakeCoordinatorClient::Heartbeat() {
  std::lock_guard<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(NextError("Heartbeat"));
  ++heartbeat_count_;
  return absl::Seconds(30);
}

absl::StatusOr<v1::IslandPlan> FakeCoordinatorClient::WaitForPlan(
    const PlanPosition& after, absl::Duration timeout, std::stop_token stop) {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto newer = [&] {
    return plan_.has_value() && PositionOf(*plan_) > after;
  };
  const auto failing = [&] {
    const auto found = errors_.find("WaitForPlan");
    return found != errors_.end() && !found->second.empty();
  };
  changed_.wait_for(lock, stop, absl::ToChronoNanoseconds(timeout),
                    [&] { return newer() || failing(); });
  RETURN_IF_ERROR(NextError("WaitForPlan"));
  if (newer()) return *plan_;
  if (stop.stop_requested()) return absl::CancelledError("stopped");
  return absl::DeadlineExceededError("no newer plan");
}

absl::Status FakeCoordinatorClient::ReportProgress(
    v1::ReportProgressRequest progress) {
  std::lock_guard<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(NextError("ReportProgress"));
  progress_.push_back(std::move(progress));
  return absl::OkStatus();
}

absl::Status FakeCoordinatorClient::Leave(absl::string_view /*reason*/) {
  std::lock_guard<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(NextError("Leave"));
  left_ = true;
  return absl::OkStatus();
}

}  // namespace atl::coordinator
