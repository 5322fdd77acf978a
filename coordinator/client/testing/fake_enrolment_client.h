// An in-memory EnrolmentClient, for tests of gates and of the command line.
//
// It keeps tokens, grants and revocations as the coordinator does, without
// expiry and name patterns. Thread-safe.

#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"
#include "coordinator/client/enrolment_client.h"

namespace atl::coordinator {

class FakeEnrolmentClient : public EnrolmentClient {
 public:
  // Grants begin and end relative to `clock`, which must outlive the client.
  explicit FakeEnrolmentClient(const Clock& clock) : clock_(clock) {}

  // The servers that answers name.
  void SetServers(std::vector<std::string> addresses);
  // The run that CheckToken shows.
  void SetRun(const v1::RunPreview& run);
  // A token that CreateToken has not made.
  void AddToken(const v1::Token& token, const std::string& secret);
  // Queues an error for a later call of `method`: "ConsumeToken" and the like.
  void FailNext(const std::string& method, absl::Status status);
  // Merges `spoilt` into each later grant: a coordinator that errs.
  void SpoilGrants(const v1::CertificateGrant& spoilt);
  void AddAuditRecord(v1::AuditRecord record);

  std::vector<v1::AnnounceGateRequest> announcements() const;
  std::vector<v1::ConsumeTokenRequest> consumptions() const;
  std::vector<v1::RenewCertificateRequest> renewals() const;
  int call_count() const;
  // Waits for `count` announcements; false if they have not come after
  // `timeout`.
  bool WaitForAnnouncements(size_t count, absl::Duration timeout);

  absl::StatusOr<v1::AnnounceGateResponse> AnnounceGate(
      const v1::AnnounceGateRequest& request) override;
  absl::StatusOr<v1::ConsumeTokenResponse> ConsumeToken(
      const v1::ConsumeTokenRequest& request) override;
  absl::StatusOr<v1::CheckTokenResponse> CheckToken(
      const v1::CheckTokenRequest& request) override;
  absl::StatusOr<v1::RenewCertificateResponse> RenewCertificate(
      const v1::RenewCertificateRequest& request) override;
  absl::StatusOr<v1::CreateTokenResponse> CreateToken(
      const v1::CreateTokenRequest& request) override;
  absl::StatusOr<v1::ListTokensResponse> ListTokens(
      const v1::ListTokensRequest& request) override;
  absl::StatusOr<v1::RevokeTokenResponse> RevokeToken(
      const v1::RevokeTokenRequest& request) override;
  absl::StatusOr<v1::RevokeIslandResponse> RevokeIsland(
      const v1::RevokeIslandRequest& request) override;
  absl::StatusOr<v1::ListAuditRecordsResponse> ListAuditRecords(
      const v1::ListAuditRecordsRequest& request) override;

 private:
  struct KnownToken {
    v1::Token token;
    std::string secret_sha256;
  };
  // An enrolled island.
  struct Enrolled {
    std::string key_sha256;
    v1::CertificateGrant grant;
  };
  using RunAndName = std::pair<std::string, std::string>;

  absl::Status Begin(const std::string& method)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<KnownToken*> FindToken(const std::string& token_id,
                                        const std::string& secret)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  v1::CertificateGrant MakeGrant(const v1::EnrolledIdentity& identity,
                                 absl::Duration lifetime)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock& clock_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<std::string> servers_ ABSL_GUARDED_BY(mutex_);
  v1::RunPreview run_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, KnownToken> tokens_ ABSL_GUARDED_BY(mutex_);
  std::map<RunAndName, Enrolled> enrolled_ ABSL_GUARDED_BY(mutex_);
  std::set<RunAndName> revoked_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, std::deque<absl::Status>> errors_
      ABSL_GUARDED_BY(mutex_);
  v1::CertificateGrant spoilt_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::AuditRecord> audit_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::AnnounceGateRequest> announcements_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ConsumeTokenRequest> consumptions_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::RenewCertificateRequest> renewals_ ABSL_GUARDED_BY(mutex_);
  int call_count_ ABSL_GUARDED_BY(mutex_) = 0;
  int grant_count_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace atl::coordinator
