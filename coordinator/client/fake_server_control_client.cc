#include "coordinator/client/fake_server_control_client.h"

#include <utility>

#include "base/status/status_macros.h"

namespace atl::coordinator {

void FakeServerControlClient::SetRegisterResponse(
    v1::RegisterServerResponse response) {
  std::lock_guard<std::mutex> lock(mutex_);
  register_response_ = std::move(response);
}

void FakeServerControlClient::SetPlan(v1::ServerPlan plan) {
  std::lock_guard<std::mutex> lock(mutex_);
  plan_ = std::move(plan);
  changed_.notify_all();
}

void FakeServerControlClient::FailNext(const std::string& method,
                                       absl::Status status) {
  std::lock_guard<std::mutex> lock(mutex_);
  errors_[method].push_back(std::move(status));
  changed_.notify_all();
}

std::vector<v1::RegisterServerRequest> FakeServerControlClient::registrations()
    const {
  std::lock_guard<std::mutex> lock(mutex_);
  return registrations_;
}

std::vector<v1::ReportShardsRequest> FakeServerControlClient::reports() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return reports_;
}

bool FakeServerControlClient::WaitForReports(size_t count,
                                             absl::Duration timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, absl::ToChronoNanoseconds(timeout),
                           [&] { return reports_.size() >= count; });
}

absl::Status FakeServerControlClient::NextError(const std::string& method) {
  const auto found = errors_.find(method);
  if (found == errors_.end() || found->second.empty()) return absl::OkStatus();
  absl::Status status = found->second.front();
  found->second.pop_front();
  return status;
}

absl::StatusOr<v1::RegisterServerResponse>
FakeServerControlClient::RegisterServer(
    const v1::RegisterServerRequest& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  registrations_.push_back(request);
  RETURN_IF_ERROR(NextError("RegisterServer"));
  return register_response_;
}

absl::StatusOr<v1::ServerPlan> FakeServerControlClient::WaitForPlan(
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

absl::StatusOr<absl::Duration> FakeServerControlClient::ReportShards(
    v1::ReportShardsRequest report) {
  std::lock_guard<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(NextError("ReportShards"));
  reports_.push_back(std::move(report));
  changed_.notify_all();
  return absl::Seconds(30);
}

}  // namespace atl::coordinator
