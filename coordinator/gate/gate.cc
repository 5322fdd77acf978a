#include "coordinator/gate/gate.h"

#include <memory>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/failpoint/failpoint.h"
#include "base/identity/identity.h"
#include "base/identity/join_string.h"
#include "base/layout/ids.h"
#include "base/obs/log.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/certificate_request.h"
#include "base/rpc/certificates/data_token.h"
#include "base/rpc/certificates/public_key.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/tls_stream/tls_stream.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "coordinator/gate/enrolled_certificate.h"
#include "coordinator/gate/grant_check.h"

namespace atl::coordinator {
namespace {

// With the time it fits a message.
constexpr size_t kTokenStateBytesMax = rpc::kTlsMessageBytesMax - 256;

absl::string_view KindOf(const v1::GateRequest& request) {
  switch (request.body_case()) {
    case v1::GateRequest::kEnrol:
      return "enrol";
    case v1::GateRequest::kRenew:
      return "renew";
    case v1::GateRequest::kCheck:
      return "check";
    case v1::GateRequest::kProbe:
      return "probe";
    default:
      return "none";
  }
}

absl::Status CheckToken(absl::string_view token_id,
                        absl::string_view token_secret,
                        absl::string_view run_id) {
  if (!IsTokenId(token_id)) {
    return absl::InvalidArgumentError("token_id is not [a-z0-9]{12}");
  }
  if (!IsTokenSecretSize(token_secret.size())) {
    return absl::InvalidArgumentError("token_secret has not 16 to 64 bytes");
  }
  return ValidateId("run_id", run_id);
}

// What the gate signs of a grant.
struct SignedGrant {
  std::string cert_pem;
  std::string data_token;
};

absl::StatusOr<SignedGrant> SignGrant(const v1::CertificateGrant& grant,
                                      const rpc::KeyAndCertificate& island_ca,
                                      const std::string& key_der) {
  ASSIGN_OR_RETURN(const rpc::CertificateSpec spec, CheckGrant(grant));
  SignedGrant made;
  ASSIGN_OR_RETURN(made.cert_pem,
                   rpc::IssueCertificateForKey(island_ca, spec, key_der));
  ASSIGN_OR_RETURN(const rpc::CertificateFacts facts,
                   rpc::ReadFacts(made.cert_pem));
  const v1::EnrolledIdentity& identity = grant.identity();
  const bool is_reader = identity.role() == v1::ENROLLED_ROLE_READER;
  ASSIGN_OR_RETURN(
      made.data_token,
      rpc::SignDataToken({identity.cluster_id(), identity.run_uid(),
                          is_reader ? Role::kReader : Role::kIsland,
                          identity.name(), facts.end},
                         island_ca.key_pem));
  LOG(INFO) << "signed " << spec.common_name << " for run " << identity.run_id()
            << " until " << spec.end;
  return made;
}

// What a stranger is told of an error of the coordinator's.
absl::Status ToStrangersError(const absl::Status& status) {
  const absl::Status away =
      absl::UnavailableError("the coordinator is away; try again");
  if (IsAway(status)) return away;  // Or full for a moment.
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kResourceExhausted:
      return status;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      // Without a reason the gate itself is refused.
      if (GetReason(status).has_value()) return status;
      break;
    case absl::StatusCode::kFailedPrecondition:
      // To try again does not help before the operator acts.
      if (const auto reason = GetReason(status);
          reason.has_value() && reason->reason == "NO_ISLAND_CA") {
        return status;
      }
      break;
    default:
      break;
  }
  return away;
}

template <typename Response>
absl::StatusOr<Response> ForStranger(absl::StatusOr<Response> response) {
  if (response.ok()) return response;
  const absl::Status told = ToStrangersError(response.status());
  // That the coordinator is away is the announcer's to log.
  if (told != response.status() && !IsAway(response.status())) {
    LOG(WARNING) << "the coordinator refuses this gate: " << response.status();
  }
  return told;
}

v1::GateError ToGateError(const absl::Status& status) {
  v1::GateError error;
  error.set_code(static_cast<int>(status.code()));
  error.set_message(std::string(status.message()));
  error.set_reason(GetReason(WithDefaultReason(status))->reason);
  return error;
}

}  // namespace

Gate::Gate(const Spec& spec)
    : spec_(spec),
      requests_(prometheus::BuildCounter()
                    .Name("atoll_gate_requests_total")
                    .Help("Requests that the gate has answered, by their "
                          "kind, and by what became of them.")
                    .Register(spec.metrics->registry())),
      calls_(spec.all_calls, spec.address_calls),
      renewals_(spec.all_renewals, spec.name_renewals),
      probe_calls_(spec.all_probes, spec.address_probes) {}

Gate::Answered Gate::Answer(const std::string& bytes, const Peer& peer) {
  v1::GateRequest request;
  absl::StatusOr<v1::GateResponse> response =
      request.ParseFromString(bytes)
          ? Decide(request, peer)
          : Refuse(absl::StatusCode::kInvalidArgument, "UNREADABLE_MESSAGE",
                   "the message is no GateRequest");
  const std::string result =
      response.ok() ? "ok"
                    : absl::AsciiStrToLower(
                          absl::StatusCodeToString(response.status().code()));
  requests_.Add({{"kind", std::string(KindOf(request))}, {"result", result}})
      .Increment();
  Answered answered;
  v1::GateResponse answer;
  if (response.ok()) {
    answer = *std::move(response);
    answered.probe = request.probe().direction();
  } else {
    *answer.mutable_error() = ToGateError(response.status());
  }
  *answer.mutable_time() = ToProto(absl::Now());
  answered.bytes = answer.SerializeAsString();
  return answered;
}

void Gate::EndProbe(const std::string& limit_key) {
  MutexLock lock(&mutex_);
  probing_.erase(limit_key);
}

absl::StatusOr<v1::GateResponse> Gate::Decide(const v1::GateRequest& request,
                                              const Peer& peer) {
  if (request.body_case() == v1::GateRequest::BODY_NOT_SET) {
    return absl::InvalidArgumentError("the GateRequest asks for nothing");
  }
  if (request.has_renew()) return Renew(peer);
  RETURN_IF_ERROR(TakeCall(calls_, peer.limit_key));
  switch (request.body_case()) {
    case v1::GateRequest::kEnrol:
      return Enrol(request.enrol());
    case v1::GateRequest::kProbe:
      return Probe(request.probe(), peer);
    default:
      return Check(request.check());
  }
}

absl::StatusOr<v1::GateResponse> Gate::Enrol(
    const v1::TokenEnrolment& enrolment) {
  RETURN_IF_ERROR(CheckToken(enrolment.token_id(), enrolment.token_secret(),
                             enrolment.run_id()));
  if (!enrolment.name().empty()) {
    RETURN_IF_ERROR(ValidateId("name", enrolment.name()));
  }
  ASSIGN_OR_RETURN(
      const rpc::PublicKey key,
      rpc::ReadCertificateRequest(enrolment.certificate_request()));
  v1::ConsumeTokenRequest request;
  request.set_token_id(enrolment.token_id());
  request.set_token_secret(enrolment.token_secret());
  request.set_run_id(enrolment.run_id());
  request.set_role(enrolment.role());
  request.set_name(enrolment.name());
  request.set_key_sha256(key.sha256);
  *request.mutable_lifetime() = ToProto(spec_.lifetime);
  failpoint::Hit("gate.consume.before");
  ASSIGN_OR_RETURN(const v1::ConsumeTokenResponse granted,
                   ForStranger(spec_.consume_token(request)));
  failpoint::Hit("gate.consume.after");
  return Sign(granted, key.der);
}

absl::StatusOr<v1::GateResponse> Gate::Renew(const Peer& peer) {
  ASSIGN_OR_RETURN(
      const EnrolledCertificate present,
      CheckEnrolledCertificate(
          peer.chain_pem, spec_.files->Get()->island_ca.cert_pem, absl::Now()));
  RETURN_IF_ERROR(TakeCall(renewals_,
                           absl::StrCat(present.identity.run_uid(), "/",
                                        present.identity.name())));
  v1::RenewCertificateRequest request;
  *request.mutable_identity() = present.identity;
  request.set_key_sha256(present.key.sha256);
  *request.mutable_lifetime() = ToProto(spec_.lifetime);
  ASSIGN_OR_RETURN(const v1::RenewCertificateResponse granted,
                   ForStranger(spec_.renew_certificate(request)));
  return Sign(granted, present.key.der);
}

absl::StatusOr<v1::GateResponse> Gate::Check(const v1::TokenCheck& check) {
  RETURN_IF_ERROR(
      CheckToken(check.token_id(), check.token_secret(), check.run_id()));
  v1::CheckTokenRequest request;
  request.set_token_id(check.token_id());
  request.set_token_secret(check.token_secret());
  request.set_run_id(check.run_id());
  ASSIGN_OR_RETURN(const v1::CheckTokenResponse found,
                   ForStranger(spec_.check_token(request)));
  v1::GateResponse response;
  v1::TokenState& state = *response.mutable_token_state();
  state.set_uses_left(found.token().use_count_max() -
                      found.token().use_count());
  *state.mutable_expire_time() = found.token().expire_time();
  state.set_coordinator_address(FindCoordinator(found.token().role()));
  *state.mutable_server_addresses() = found.server_addresses();
  *state.mutable_run() = found.run();
  if (state.ByteSizeLong() > kTokenStateBytesMax) {
    state.mutable_run()->clear_spec();
  }
  return response;
}

absl::StatusOr<v1::GateResponse> Gate::Probe(const v1::LinkProbe& probe,
                                             const Peer& peer) {
  if (probe.direction() != v1::LINK_DIRECTION_UP &&
      probe.direction() != v1::LINK_DIRECTION_DOWN) {
    return absl::InvalidArgumentError("the probe has no direction");
  }
  if (probe.has_token()) {
    RETURN_IF_ERROR(Check(probe.token()).status());
  } else {
    const absl::Time now = absl::Now();
    RETURN_IF_ERROR(
        CheckEnrolledCertificate(
            peer.chain_pem, spec_.files->Get()->island_ca.cert_pem, now)
            .status());
    RETURN_IF_ERROR(rpc::CheckValidity(peer.chain_pem, now));
  }
  RETURN_IF_ERROR(TakeCall(probe_calls_, peer.limit_key));
  MutexLock lock(&mutex_);
  if (probing_.size() >= spec_.probe_count_max ||
      !probing_.insert(peer.limit_key).second) {
    return Refuse(absl::StatusCode::kResourceExhausted, "BUSY",
                  "the gate measures other links now; try again");
  }
  v1::GateResponse response;
  response.mutable_link();
  return response;
}

const std::string& Gate::FindCoordinator(v1::EnrolledRole role) const {
  return role == v1::ENROLLED_ROLE_READER ? spec_.query_coordinator
                                          : spec_.island_coordinator;
}

template <typename Response>
absl::StatusOr<v1::GateResponse> Gate::Sign(const Response& granted,
                                            const std::string& key_der) {
  const std::shared_ptr<const GateMaterial> material = spec_.files->Get();
  absl::StatusOr<SignedGrant> made =
      SignGrant(granted.grant(), material->island_ca, key_der);
  if (!made.ok()) {
    LOG(ERROR) << "cannot sign a grant: " << made.status();
    return absl::InternalError(made.status().message());
  }
  failpoint::Hit("gate.sign.after");
  v1::GateResponse response;
  v1::Enrolled& enrolled = *response.mutable_enrolled();
  *enrolled.mutable_identity() = granted.grant().identity();
  enrolled.set_certificate_chain_pem(made->cert_pem +
                                     material->island_ca.cert_pem);
  enrolled.set_data_token(std::move(made->data_token));
  enrolled.set_root_pem(material->root_pem);
  enrolled.set_coordinator_address(
      FindCoordinator(granted.grant().identity().role()));
  *enrolled.mutable_server_addresses() = granted.server_addresses();
  return response;
}

absl::Status Gate::TakeCall(CallLimit& limit, const std::string& key) {
  MutexLock lock(&mutex_);
  if (limit.Take(key, spec_.clock->Now())) return absl::OkStatus();
  return Refuse(absl::StatusCode::kResourceExhausted, "BUSY",
                "too many requests reach the gate; try again in a minute");
}

}  // namespace atl::coordinator
