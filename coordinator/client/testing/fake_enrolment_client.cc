#include "coordinator/client/testing/fake_enrolment_client.h"

#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"

namespace atl::coordinator {
namespace {

constexpr char kClusterId[] = "c0000000000000000000000000000001";
constexpr size_t kSerialBytes = 16;
constexpr absl::Duration kBeginsBefore = absl::Minutes(5);

std::string Sha256(const std::string& bytes) {
  const codec::Sha256Digest digest = codec::ComputeSha256(bytes);
  return std::string(digest.begin(), digest.end());
}

}  // namespace

void FakeEnrolmentClient::SetServers(std::vector<std::string> addresses) {
  MutexLock lock(&mutex_);
  servers_ = std::move(addresses);
}

void FakeEnrolmentClient::SetRun(const v1::RunPreview& run) {
  MutexLock lock(&mutex_);
  run_ = run;
}

void FakeEnrolmentClient::AddToken(const v1::Token& token,
                                   const std::string& secret) {
  MutexLock lock(&mutex_);
  tokens_[token.token_id()] = {token, Sha256(secret)};
}

void FakeEnrolmentClient::FailNext(const std::string& method,
                                   absl::Status status) {
  MutexLock lock(&mutex_);
  errors_[method].push_back(std::move(status));
}

void FakeEnrolmentClient::SpoilGrants(const v1::CertificateGrant& spoilt) {
  MutexLock lock(&mutex_);
  spoilt_ = spoilt;
}

void FakeEnrolmentClient::AddAuditRecord(v1::AuditRecord record) {
  MutexLock lock(&mutex_);
  audit_.push_back(std::move(record));
}

std::vector<v1::AnnounceGateRequest> FakeEnrolmentClient::announcements()
    const {
  MutexLock lock(&mutex_);
  return announcements_;
}

std::vector<v1::ConsumeTokenRequest> FakeEnrolmentClient::consumptions() const {
  MutexLock lock(&mutex_);
  return consumptions_;
}

std::vector<v1::RenewCertificateRequest> FakeEnrolmentClient::renewals() const {
  MutexLock lock(&mutex_);
  return renewals_;
}

int FakeEnrolmentClient::call_count() const {
  MutexLock lock(&mutex_);
  return call_count_;
}

bool FakeEnrolmentClient::WaitForAnnouncements(size_t count,
                                               absl::Duration timeout) {
  MutexLock lock(&mutex_);
  return changed_.AwaitWithTimeout(&mutex_, timeout,
                                   [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
                                     return announcements_.size() >= count;
                                   });
}

absl::Status FakeEnrolmentClient::Begin(const std::string& method) {
  ++call_count_;
  std::deque<absl::Status>& errors = errors_[method];
  if (errors.empty()) return absl::OkStatus();
  absl::Status status = std::move(errors.front());
  errors.pop_front();
  return status;
}

absl::StatusOr<FakeEnrolmentClient::KnownToken*> FakeEnrolmentClient::FindToken(
    const std::string& token_id, const std::string& secret) {
  const auto found = tokens_.find(token_id);
  if (found == tokens_.end() || found->second.secret_sha256 != Sha256(secret)) {
    return Refuse(absl::StatusCode::kUnauthenticated, "WRONG_TOKEN",
                  "no token has this id and secret");
  }
  if (found->second.token.has_revoke_time()) {
    return Refuse(absl::StatusCode::kPermissionDenied, "TOKEN_REVOKED",
                  "the token was revoked");
  }
  return &found->second;
}

v1::CertificateGrant FakeEnrolmentClient::MakeGrant(
    const v1::EnrolledIdentity& identity, absl::Duration lifetime) {
  v1::CertificateGrant grant;
  *grant.mutable_identity() = identity;
  std::string serial(kSerialBytes, '\0');
  serial.front() = 1;
  serial.back() = static_cast<char>(++grant_count_);
  grant.set_serial(serial);
  const absl::Time now = clock_.Now();
  *grant.mutable_begin_time() = ToProto(now - kBeginsBefore);
  *grant.mutable_end_time() = ToProto(now + lifetime);
  grant.MergeFrom(spoilt_);
  return grant;
}

absl::StatusOr<v1::AnnounceGateResponse> FakeEnrolmentClient::AnnounceGate(
    const v1::AnnounceGateRequest& request) {
  MutexLock lock(&mutex_);
  announcements_.push_back(request);
  changed_.SignalAll();
  RETURN_IF_ERROR(Begin("AnnounceGate"));
  return v1::AnnounceGateResponse();
}

absl::StatusOr<v1::ConsumeTokenResponse> FakeEnrolmentClient::ConsumeToken(
    const v1::ConsumeTokenRequest& request) {
  MutexLock lock(&mutex_);
  consumptions_.push_back(request);
  RETURN_IF_ERROR(Begin("ConsumeToken"));
  ASSIGN_OR_RETURN(KnownToken* const known,
                   FindToken(request.token_id(), request.token_secret()));
  v1::Token& token = known->token;
  v1::ConsumeTokenResponse response;
  response.mutable_server_addresses()->Assign(servers_.begin(), servers_.end());
  for (const auto& [place, enrolled] : enrolled_) {
    if (enrolled.key_sha256 == request.key_sha256()) {
      *response.mutable_grant() = enrolled.grant;
      return response;
    }
  }
  if (token.use_count() >= token.use_count_max()) {
    return Refuse(absl::StatusCode::kPermissionDenied, "TOKEN_USED",
                  "the token has no use left");
  }
  v1::EnrolledIdentity identity;
  identity.set_cluster_id(kClusterId);
  identity.set_run_id(token.run_id());
  identity.set_run_uid(token.run_uid());
  identity.set_role(token.role());
  identity.set_name(request.name().empty()
                        ? absl::StrCat("island-", grant_count_ + 1)
                        : request.name());
  const RunAndName place(identity.run_id(), identity.name());
  if (enrolled_.count(place) > 0) {
    return Refuse(absl::StatusCode::kAlreadyExists, "NAME_TAKEN",
                  "another island has this name; choose another --name");
  }
  token.set_use_count(token.use_count() + 1);
  Enrolled& enrolled = enrolled_[place];
  enrolled.key_sha256 = request.key_sha256();
  enrolled.grant = MakeGrant(identity, FromProto(request.lifetime()));
  *response.mutable_grant() = enrolled.grant;
  return response;
}

absl::StatusOr<v1::CheckTokenResponse> FakeEnrolmentClient::CheckToken(
    const v1::CheckTokenRequest& request) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Begin("CheckToken"));
  ASSIGN_OR_RETURN(const KnownToken* const known,
                   FindToken(request.token_id(), request.token_secret()));
  v1::CheckTokenResponse response;
  *response.mutable_token() = known->token;
  response.mutable_server_addresses()->Assign(servers_.begin(), servers_.end());
  *response.mutable_run() = run_;
  return response;
}

absl::StatusOr<v1::RenewCertificateResponse>
FakeEnrolmentClient::RenewCertificate(
    const v1::RenewCertificateRequest& request) {
  MutexLock lock(&mutex_);
  renewals_.push_back(request);
  RETURN_IF_ERROR(Begin("RenewCertificate"));
  RunAndName place;
  for (const auto& [known, enrolled] : enrolled_) {
    const v1::EnrolledIdentity& identity = enrolled.grant.identity();
    if (identity.run_uid() == request.identity().run_uid() &&
        identity.name() == request.identity().name() &&
        enrolled.key_sha256 == request.key_sha256()) {
      place = known;
    }
  }
  if (place == RunAndName()) {
    return Refuse(absl::StatusCode::kNotFound, "NOT_ENROLLED",
                  "this island is not known with this key");
  }
  if (revoked_.count(place) > 0) {
    return Refuse(absl::StatusCode::kPermissionDenied, "REVOKED",
                  "an operator has revoked this island");
  }
  Enrolled& enrolled = enrolled_[place];
  enrolled.grant =
      MakeGrant(enrolled.grant.identity(), FromProto(request.lifetime()));
  v1::RenewCertificateResponse response;
  *response.mutable_grant() = enrolled.grant;
  response.mutable_server_addresses()->Assign(servers_.begin(), servers_.end());
  return response;
}

absl::StatusOr<v1::CreateTokenResponse> FakeEnrolmentClient::CreateToken(
    const v1::CreateTokenRequest& request) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Begin("CreateToken"));
  if (announcements_.empty()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NO_GATE",
                  "no gate has announced itself");
  }
  KnownToken& known = tokens_[request.token().token_id()];
  known = {request.token(), request.secret_sha256()};
  *known.token.mutable_create_time() = ToProto(clock_.Now());
  v1::CreateTokenResponse response;
  *response.mutable_token() = known.token;
  response.set_gate_address(announcements_.back().address());
  response.set_pin(announcements_.back().pin());
  return response;
}

absl::StatusOr<v1::ListTokensResponse> FakeEnrolmentClient::ListTokens(
    const v1::ListTokensRequest& request) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Begin("ListTokens"));
  v1::ListTokensResponse response;
  for (const auto& [id, known] : tokens_) {
    if (request.run_id().empty() || known.token.run_id() == request.run_id()) {
      *response.add_tokens() = known.token;
    }
  }
  return response;
}

absl::StatusOr<v1::RevokeTokenResponse> FakeEnrolmentClient::RevokeToken(
    const v1::RevokeTokenRequest& request) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Begin("RevokeToken"));
  const auto found = tokens_.find(request.token_id());
  if (found == tokens_.end()) {
    return Refuse(absl::StatusCode::kNotFound, "NO_SUCH_TOKEN",
                  "there is no token with this id");
  }
  v1::Token& token = found->second.token;
  *token.mutable_revoke_time() = ToProto(clock_.Now());
  v1::RevokeTokenResponse response;
  *response.mutable_token() = token;
  return response;
}

absl::StatusOr<v1::RevokeIslandResponse> FakeEnrolmentClient::RevokeIsland(
    const v1::RevokeIslandRequest& request) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Begin("RevokeIsland"));
  revoked_.emplace(request.run_id(), request.island_id());
  return v1::RevokeIslandResponse();
}

absl::StatusOr<v1::ListAuditRecordsResponse>
FakeEnrolmentClient::ListAuditRecords(
    const v1::ListAuditRecordsRequest& request) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Begin("ListAuditRecords"));
  constexpr int kDefaultPage = 100;
  const int count_max =
      request.page_size() == 0 ? kDefaultPage : request.page_size();
  v1::ListAuditRecordsResponse response;
  for (const v1::AuditRecord& record : audit_) {
    if (record.number() > request.after_number() &&
        response.records_size() < count_max) {
      *response.add_records() = record;
    }
  }
  return response;
}

}  // namespace atl::coordinator
