// Checks of a cluster, for its operator: coordinator, servers, gates and runs.
// Each wait is bounded.
//
// Thread-compatible.

#pragma once

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "atoll/v1/training_state_service.pb.h"
#include "base/rpc/certificates/tls.h"
#include "cli/doctor/check.h"
#include "cli/doctor/operator_judge.h"
#include "coordinator/client/client.h"

namespace atl::cli {

class OperatorDoctor {
 public:
  struct Spec {
    coordinator::Client* client = nullptr;  // Must outlive it.
    std::string coordinator_address;        // host:port
    rpc::Security security;
    absl::Duration patience = absl::Seconds(15);  // For all waits together.
    int stop_fd = -1;  // A waker that ends every wait.
  };

  OperatorDoctor(const Spec& spec, Checks& checks);

  // Makes all checks.
  void Run();

 private:
  // Looks at several services at the same time. `gates` are the cluster's.
  void LookAtAll(const v1::GetClusterResponse& cluster,
                 ServiceFacts& coordinator, std::vector<ServiceFacts>& servers,
                 std::vector<ServiceFacts>& gates) const;
  // Reaches the service's port, and reads its certificate.
  void Look(ServiceFacts& service) const;
  void LookAtGate(const std::string& pin, ServiceFacts& gate) const;
  // `unseen_count`: runs that have not ended and were not looked at.
  absl::StatusOr<std::vector<v1::GetRunStateResponse>> ListRuns(
      int64_t& unseen_count) const;
  absl::Time Within(absl::Duration span) const;

  const Spec spec_;
  Checks& checks_;
  const absl::Time deadline_;
};

}  // namespace atl::cli
