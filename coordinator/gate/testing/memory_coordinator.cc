#include "coordinator/gate/testing/memory_coordinator.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/codec/sha256.h"
#include "base/features/features.h"
#include "base/obs/version.h"
#include "base/status/check.h"
#include "base/status/status_macros.h"

namespace atl::coordinator {
namespace {

constexpr char kOperator[] = "operator:anna";
constexpr char kGate[] = "gate:g";
constexpr double kNormFactor = 8;  // Enrolled islands must have a bound.

}  // namespace

MemoryCoordinator::MemoryCoordinator() : now_(absl::Now()), core_({}) {
  MutexLock lock(&mutex_);
  core_.Start(now_, {kClusterId, "start"}, 0);
  v1::AnnounceGateRequest gate;
  gate.set_address("first.example.org:443");
  gate.set_pin(std::string(43, 'p'));
  CHECK_OK(core_.AnnounceGate(gate, MakeCall(kGate)).status());
}

void MemoryCoordinator::AddServer(const std::string& address) {
  MutexLock lock(&mutex_);
  v1::RegisterServerRequest request;
  request.set_server_id(absl::StrCat("s", server_count_++));
  request.set_address(address);
  request.set_incarnation(1);
  request.set_features(ProgramFeatures());
  CHECK_OK(core_.RegisterServer(request, now_).status());
}

void MemoryCoordinator::CreateRun(const std::string& run_id, v1::RunSpec spec) {
  MutexLock lock(&mutex_);
  v1::CreateRunRequest request;
  request.set_run_id(run_id);
  *request.mutable_spec() = std::move(spec);
  request.mutable_spec()->mutable_outer()->set_enrolled_norm_factor(
      kNormFactor);
  request.mutable_spec()->set_server_count(server_count_);
  CHECK_OK(
      core_.CreateRun(request, now_, absl::StrCat("uid-", run_id)).status());
}

void MemoryCoordinator::CreateToken(const v1::Token& token,
                                    const std::string& secret) {
  MutexLock lock(&mutex_);
  v1::CreateTokenRequest request;
  *request.mutable_token() = token;
  const codec::Sha256Digest digest = codec::ComputeSha256(secret);
  request.set_secret_sha256(std::string(digest.begin(), digest.end()));
  CHECK_OK(core_.CreateToken(request, MakeCall(kOperator)).status());
}

void MemoryCoordinator::RevokeIsland(const std::string& run_id,
                                     const std::string& island_id) {
  MutexLock lock(&mutex_);
  v1::RevokeIslandRequest request;
  request.set_run_id(run_id);
  request.set_island_id(island_id);
  CHECK_OK(core_.RevokeIsland(request, MakeCall(kOperator)).status());
}

void MemoryCoordinator::FailNext(absl::Status status) {
  MutexLock lock(&mutex_);
  errors_.push_back(std::move(status));
}

void MemoryCoordinator::SpoilGrants(const v1::CertificateGrant& spoilt) {
  MutexLock lock(&mutex_);
  spoilt_ = spoilt;
}

absl::Status MemoryCoordinator::AnnounceGate(
    const v1::AnnounceGateRequest& request) {
  MutexLock lock(&mutex_);
  announcements_.push_back(request);
  changed_.SignalAll();
  RETURN_IF_ERROR(Begin());
  return core_.AnnounceGate(request, MakeCall(kGate)).status();
}

absl::StatusOr<v1::ConsumeTokenResponse> MemoryCoordinator::ConsumeToken(
    const v1::ConsumeTokenRequest& request) {
  MutexLock lock(&mutex_);
  consumptions_.push_back(request);
  RETURN_IF_ERROR(Begin());
  auto response = core_.ConsumeToken(request, MakeCall(kGate));
  if (response.ok()) response->mutable_grant()->MergeFrom(spoilt_);
  return response;
}

absl::StatusOr<v1::CheckTokenResponse> MemoryCoordinator::CheckToken(
    const v1::CheckTokenRequest& request) {
  MutexLock lock(&mutex_);
  RETURN_IF_ERROR(Begin());
  auto response = core_.CheckToken(request, MakeCall(kGate));
  if (response.ok()) {
    response->mutable_run()->set_program_version(kProgramVersion);
  }
  return response;
}

absl::StatusOr<v1::RenewCertificateResponse>
MemoryCoordinator::RenewCertificate(
    const v1::RenewCertificateRequest& request) {
  MutexLock lock(&mutex_);
  renewals_.push_back(request);
  RETURN_IF_ERROR(Begin());
  auto response = core_.RenewCertificate(request, MakeCall(kGate));
  if (response.ok()) response->mutable_grant()->MergeFrom(spoilt_);
  return response;
}

std::vector<v1::AnnounceGateRequest> MemoryCoordinator::announcements() const {
  MutexLock lock(&mutex_);
  return announcements_;
}

std::vector<v1::ConsumeTokenRequest> MemoryCoordinator::consumptions() const {
  MutexLock lock(&mutex_);
  return consumptions_;
}

std::vector<v1::RenewCertificateRequest> MemoryCoordinator::renewals() const {
  MutexLock lock(&mutex_);
  return renewals_;
}

int MemoryCoordinator::call_count() const {
  MutexLock lock(&mutex_);
  return call_count_;
}

bool MemoryCoordinator::WaitForAnnouncements(size_t count,
                                             absl::Duration timeout) {
  MutexLock lock(&mutex_);
  return changed_.AwaitWithTimeout(&mutex_, timeout,
                                   [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
                                     return announcements_.size() >= count;
                                   });
}

absl::Status MemoryCoordinator::Begin() {
  ++call_count_;
  if (errors_.empty()) return absl::OkStatus();
  absl::Status status = std::move(errors_.front());
  errors_.pop_front();
  return status;
}

EnrolmentCall MemoryCoordinator::MakeCall(const std::string& actor) {
  ++random_;
  return {{actor, ""},
          {absl::StrFormat("%032x", random_), absl::StrFormat("%06x", random_)},
          now_,
          now_};
}

}  // namespace atl::coordinator
