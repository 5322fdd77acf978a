// A coordinator in memory, for tests of gates. The real core decides; time
// stands still. Thread-safe.

#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/enrolment_service.pb.h"
#include "atoll/v1/run.pb.h"
#include "base/sync/mutex.h"
#include "coordinator/core/coordinator.h"

namespace atl::coordinator {

class MemoryCoordinator {
 public:
  static constexpr char kClusterId[] = "c0000000000000000000000000000001";

  // Has no server and no run, and a gate that has announced itself.
  MemoryCoordinator();

  void AddServer(const std::string& address);
  // The run `run_id` on the servers so far, with the run_uid "uid-" and its id.
  void CreateRun(const std::string& run_id, v1::RunSpec spec);
  void CreateToken(const v1::Token& token, const std::string& secret);
  void RevokeIsland(const std::string& run_id, const std::string& island_id);
  // The next call returns `status`, and does nothing.
  void FailNext(absl::Status status);
  // Merges `spoilt` into each later grant: a coordinator that errs.
  void SpoilGrants(const v1::CertificateGrant& spoilt);

  // The calls of gates, as EnrolmentService has them.
  absl::Status AnnounceGate(const v1::AnnounceGateRequest& request);
  absl::StatusOr<v1::ConsumeTokenResponse> ConsumeToken(
      const v1::ConsumeTokenRequest& request);
  absl::StatusOr<v1::CheckTokenResponse> CheckToken(
      const v1::CheckTokenRequest& request);
  absl::StatusOr<v1::RenewCertificateResponse> RenewCertificate(
      const v1::RenewCertificateRequest& request);

  std::vector<v1::AnnounceGateRequest> announcements() const;
  std::vector<v1::ConsumeTokenRequest> consumptions() const;
  std::vector<v1::RenewCertificateRequest> renewals() const;
  int call_count() const;  // Of gates.
  // Waits for `count` announcements; false if they have not come after
  // `timeout`.
  bool WaitForAnnouncements(size_t count, absl::Duration timeout);

 private:
  absl::Status Begin() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  EnrolmentCall MakeCall(const std::string& actor)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const absl::Time now_;
  mutable Mutex mutex_;
  CondVar changed_;
  Coordinator core_ ABSL_GUARDED_BY(mutex_);
  int64_t server_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t random_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<absl::Status> errors_ ABSL_GUARDED_BY(mutex_);
  v1::CertificateGrant spoilt_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::AnnounceGateRequest> announcements_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ConsumeTokenRequest> consumptions_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::RenewCertificateRequest> renewals_ ABSL_GUARDED_BY(mutex_);
  int call_count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace atl::coordinator
