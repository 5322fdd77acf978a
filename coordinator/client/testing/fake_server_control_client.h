// An in-memory ServerControlClient, for tests of servers. Thread-safe.

#pragma once

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "coordinator/client/server_control_client.h"
#include "coordinator/client/testing/fake_plan_source.h"

namespace atl::coordinator {

class FakeServerControlClient : public ServerControlClient {
 public:
  FakeServerControlClient();

  // Sets RegisterServer's answer; until then a lease of 30 s.
  void SetRegisterResponse(v1::RegisterServerResponse response);
  // Sets ReportShards' answer; until then a lease of 30 s.
  void SetReportResponse(v1::ReportShardsResponse response);
  // Sets the newest plan; wakes WaitForPlan.
  void SetPlan(v1::ServerPlan plan);
  // Queues an error for a later call of `method`: "RegisterServer",
  // "WaitForPlan" or "ReportShards".
  void FailNext(const std::string& method, absl::Status status);

  std::vector<v1::RegisterServerRequest> registrations() const;
  std::vector<v1::ReportShardsRequest> reports() const;
  // The report at `index`, which must exist.
  v1::ReportShardsRequest report(size_t index) const;
  // Waits for `count` reports; false if they have not come after `timeout`.
  bool WaitForReports(size_t count, absl::Duration timeout);

  absl::StatusOr<v1::RegisterServerResponse> RegisterServer(
      const v1::RegisterServerRequest& request) override;
  absl::StatusOr<v1::ServerPlan> WaitForPlan(const PlanPosition& after,
                                             absl::Duration timeout,
                                             std::stop_token stop) override;
  absl::StatusOr<v1::ReportShardsResponse> ReportShards(
      v1::ReportShardsRequest report) override;

 private:
  FakePlanSource<v1::ServerPlan> plans_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  v1::RegisterServerResponse register_response_;
  v1::ReportShardsResponse report_response_;
  std::vector<v1::RegisterServerRequest> registrations_;
  std::vector<v1::ReportShardsRequest> reports_;
};

}  // namespace atl::coordinator
