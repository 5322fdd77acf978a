#include "coordinator/client/testing/fake_server_control_client.h"

#include <utility>

#include "base/status/status_macros.h"

namespace atl::coordinator {

FakeServerControlClient::FakeServerControlClient() {
  report_response_.mutable_lease_duration()->set_seconds(30);
}

void FakeServerControlClient::SetRegisterResponse(
    v1::RegisterServerResponse response) {
  std::lock_guard<std::mutex> lock(mutex_);
  register_response_ = std::move(response);
}

void FakeServerControlClient::SetReportResponse(
    v1::ReportShardsResponse response) {
  std::lock_guard<std::mutex> lock(mutex_);
  report_response_ = std::move(response);
}

void FakeServerControlClient::SetPlan(v1::ServerPlan plan) {
  plans_.SetPlan(std::move(plan));
}

void FakeServerControlClient::FailNext(const std::string& method,
                                       absl::Status status) {
  plans_.FailNext(method, std::move(status));
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

v1::ReportShardsRequest FakeServerControlClient::report(size_t index) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return reports_[index];
}

bool FakeServerControlClient::WaitForReports(size_t count,
                                             absl::Duration timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  return changed_.wait_for(lock, absl::ToChronoNanoseconds(timeout),
                           [&] { return reports_.size() >= count; });
}

absl::StatusOr<v1::RegisterServerResponse>
FakeServerControlClient::RegisterServer(
    const v1::RegisterServerRequest& request) {
  std::lock_guard<std::mutex> lock(mutex_);
  registrations_.push_back(request);
  RETURN_IF_ERROR(plans_.NextError("RegisterServer"));
  return register_response_;
}

absl::StatusOr<v1::ServerPlan> FakeServerControlClient::WaitForPlan(
    const PlanPosition& after, absl::Duration timeout, std::stop_token stop) {
  return plans_.WaitForPlan(after, timeout, std::move(stop));
}

absl::StatusOr<v1::ReportShardsResponse> FakeServerControlClient::ReportShards(
    v1::ReportShardsRequest report) {
  std::lock_guard<std::mutex> lock(mutex_);
  RETURN_IF_ERROR(plans_.NextError("ReportShards"));
  reports_.push_back(std::move(report));
  changed_.notify_all();
  return report_response_;
}

}  // namespace atl::coordinator
