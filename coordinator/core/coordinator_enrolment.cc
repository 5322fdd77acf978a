// Enrolment: tokens, certificates, revocation, the audit log.

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/layout/ids.h"
#include "base/layout/run_timing.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "coordinator/core/coordinator.h"
#include "coordinator/core/spec/validate_spec.h"

namespace atl::coordinator {
namespace {

constexpr absl::Duration kGateMax = absl::Seconds(30);
constexpr size_t kGatesMax = 64;
constexpr size_t kPinBytes = 43;
constexpr int kDetailBytesMax = 200;

// EnrolmentRun::ignores_weights.
std::string IgnoresWeights(const v1::RunSpec& spec) {
  if (IsAsync(spec.schedule())) {
    return "it is asynchronous, and merges each contribution alone";
  }
  switch (spec.outer().merge().rule()) {
    case v1::MERGE_RULE_KIND_TRIMMED_MEAN:
    case v1::MERGE_RULE_KIND_MEDIAN:
    case v1::MERGE_RULE_KIND_KRUM:
    case v1::MERGE_RULE_KIND_MDA:
      return "its merge rule does not weigh";
    default:
      break;
  }
  switch (spec.outer().optimizer()) {
    case v1::OUTER_OPTIMIZER_KIND_FEDADAM:
    case v1::OUTER_OPTIMIZER_KIND_FEDYOGI:
    case v1::OUTER_OPTIMIZER_KIND_FEDADAGRAD:
      return "its outer optimizer divides by the size of what it merges";
    default:
      return "";
  }
}

absl::Status RefuseRevoked(const std::string& name, const std::string& run_id) {
  return Refuse(absl::StatusCode::kPermissionDenied, "REVOKED",
                absl::StrCat("an operator has revoked ", name, " in run ",
                             run_id));
}

v1::AuditRecord Describe(absl::string_view action, const std::string& run_id,
                         const std::string& subject,
                         const std::string& detail = "") {
  v1::AuditRecord record;
  record.set_action(std::string(action));
  record.set_run_id(run_id);
  record.set_subject(subject);
  record.set_detail(detail.substr(0, kDetailBytesMax));
  return record;
}

v1::AuditRecord Describe(absl::string_view action,
                         const v1::CertificateGrant& grant,
                         const std::string& detail) {
  v1::AuditRecord record = Describe(action, grant.identity().run_id(),
                                    grant.identity().name(), detail);
  record.set_granted_serial(absl::BytesToHexString(grant.serial()));
  return record;
}

}  // namespace

EnrolmentRun Coordinator::DescribeRun(const RunMachine& run) const {
  const RunState& state = run.state();
  EnrolmentRun described;
  described.cluster_id = log_history_.cluster_id();
  described.run_id = state.run_id();
  described.run_uid = state.run_uid();
  described.ignores_weights = IgnoresWeights(state.spec());
  described.min_quorum = state.spec().schedule().min_quorum();
  described.islands_max = IslandsMax(state.spec().layout().fragment_count());
  described.has_norm_bound = state.spec().outer().enrolled_norm_factor() > 0;
  described.is_island_durability =
      state.spec().durability() == v1::DURABILITY_ISLAND;
  described.is_member = [&state](const std::string& island_id) {
    return state.FindMember(island_id) != nullptr;
  };
  described.is_present = [&state](const std::string& island_id) {
    const Member* const member = state.FindMember(island_id);
    return member != nullptr && member->present();
  };
  for (const Member& member : state.members()) {
    if (!member.present()) continue;
    described.present.push_back({member.record.token_id(),
                                 member.record.weight_share_max() > 0});
  }
  return described;
}

google::protobuf::RepeatedPtrField<std::string> Coordinator::ServerAddresses(
    const RunMachine& run) const {
  google::protobuf::RepeatedPtrField<std::string> addresses;
  for (const std::string& id : run.state().server_ids()) {
    if (const ServerInfo* const server = FindServer(id)) {
      *addresses.Add() = server->address;
    }
  }
  return addresses;
}

void Coordinator::Audit(const Actor& actor, v1::AuditRecord audit,
                        absl::Time now) {
  std::vector<storage::v1::Record> records(1);
  records[0].mutable_audited();
  EmitAudited(std::move(records), actor, std::move(audit), now);
}

void Coordinator::EmitAudited(std::vector<storage::v1::Record> records,
                              const Actor& actor, v1::AuditRecord audit,
                              absl::Time now) {
  if (records.empty()) return;
  audit.set_actor(actor.name);
  audit.set_actor_certificate_sha256(actor.certificate_sha256);
  *audit.mutable_time() = ToProto(now);
  audit.set_number(own_revision_ + static_cast<int64_t>(records.size()));
  reasons_.push_back(absl::StrCat(
      "audit: ", audit.actor(), " ", audit.action(),
      audit.run_id().empty() ? "" : " run ", audit.run_id(),
      audit.subject().empty() ? "" : " ", audit.subject()));
  *records.back().mutable_audit() = std::move(audit);
  for (storage::v1::Record& record : records) {
    EmitOwn(std::move(record), now);
  }
}

absl::StatusOr<v1::AnnounceGateResponse> Coordinator::AnnounceGate(
    const v1::AnnounceGateRequest& request, const EnrolmentCall& call) {
  RETURN_IF_ERROR(CheckAddress(request.address()));
  if (request.pin().size() != kPinBytes) {
    return InvalidFields({{"pin", "must have 43 characters of base64url"}});
  }
  std::erase_if(gates_, [&call](const auto& gate) {
    return gate.second.end <= call.now;
  });
  if (gates_.size() >= kGatesMax && !gates_.contains(request.address())) {
    return Refuse(absl::StatusCode::kResourceExhausted, "TOO_MANY_GATES",
                  absl::StrCat("the coordinator knows ", kGatesMax, " gates"));
  }
  const bool is_new = !gates_.contains(request.address());
  gates_[request.address()] = {request.address(), request.pin(),
                               call.now + kGateMax};
  if (is_new) {
    reasons_.push_back(
        absl::StrCat(call.actor.name, " is a gate at ", request.address()));
  }
  return v1::AnnounceGateResponse();
}

absl::StatusOr<v1::ConsumeTokenResponse> Coordinator::ConsumeToken(
    const v1::ConsumeTokenRequest& request, const EnrolmentCall& call) {
  RETURN_IF_ERROR(CheckWritable());
  // The token first: a stranger learns of no run without one.
  ASSIGN_OR_RETURN(const storage::v1::TokenSet* const token,
                   enrolments_.FindBySecret(request.token_id(),
                                            request.token_secret()));
  ASSIGN_OR_RETURN(RunMachine* const run, FindRun(request.run_id()));
  ASSIGN_OR_RETURN(Grant granted,
                   enrolments_.Consume(request, *token, DescribeRun(*run),
                                       call.random, call.clock));
  // Servers must know of the certificate. A name of another run may make room.
  for (const storage::v1::Record& record : granted.records) {
    NoteNames(record.has_identity_forgotten()
                  ? record.identity_forgotten().run_uid()
                  : run->state().run_uid());
  }
  EmitAudited(std::move(granted.records), call.actor,
              Describe("island.enrol", granted.grant,
                       absl::StrCat("token ", request.token_id())),
              call.now);
  v1::ConsumeTokenResponse response;
  *response.mutable_grant() = std::move(granted.grant);
  *response.mutable_server_addresses() = ServerAddresses(*run);
  return response;
}

absl::StatusOr<v1::CheckTokenResponse> Coordinator::CheckToken(
    const v1::CheckTokenRequest& request, const EnrolmentCall& call) {
  v1::CheckTokenResponse response;
  ASSIGN_OR_RETURN(*response.mutable_token(),
                   enrolments_.Check(request.token_id(), request.token_secret(),
                                     request.run_id(), call.clock));
  ASSIGN_OR_RETURN(const RunMachine* const run, FindRun(request.run_id()));
  *response.mutable_server_addresses() = ServerAddresses(*run);
  *response.mutable_run() = BuildRunPreview(*run);
  return response;
}

absl::StatusOr<v1::RenewCertificateResponse> Coordinator::RenewCertificate(
    const v1::RenewCertificateRequest& request, const EnrolmentCall& call) {
  RETURN_IF_ERROR(CheckWritable());
  const v1::EnrolledIdentity& identity = request.identity();
  if (const auto fault = log_history_.CheckCluster(identity.cluster_id())) {
    return RefusePeer({"island", identity.name(), identity.run_id()}, *fault,
                      call.now);
  }
  ASSIGN_OR_RETURN(Grant granted,
                   enrolments_.Renew(request, call.random, call.clock));
  EmitAudited(std::move(granted.records), call.actor,
              Describe("island.renew", granted.grant, ""), call.now);
  v1::RenewCertificateResponse response;
  *response.mutable_grant() = std::move(granted.grant);
  const auto run = runs_.find(response.grant().identity().run_id());
  if (run != runs_.end()) {
    *response.mutable_server_addresses() = ServerAddresses(*run->second);
  }
  return response;
}

absl::StatusOr<v1::CreateTokenResponse> Coordinator::CreateToken(
    const v1::CreateTokenRequest& request, const EnrolmentCall& call) {
  ASSIGN_OR_RETURN(const RunMachine* const run,
                   FindRun(request.token().run_id()));
  RETURN_IF_ERROR(CheckWritable());
  std::erase_if(gates_, [&call](const auto& gate) {
    return gate.second.end <= call.now;
  });
  if (gates_.empty()) {
    return Refuse(absl::StatusCode::kFailedPrecondition, "NO_GATE",
                  "no gate is there to admit anybody: start atoll-gate, and "
                  "see in its log that it reaches this coordinator");
  }
  ASSIGN_OR_RETURN(std::vector<storage::v1::Record> records,
                   enrolments_.Create(request, DescribeRun(*run), call.clock));
  const v1::Token& asked = request.token();
  EmitAudited(std::move(records), call.actor,
              Describe("token.create", asked.run_id(), asked.token_id(),
                       absl::StrCat(asked.use_count_max(), " uses")),
              call.now);
  v1::CreateTokenResponse response;
  *response.mutable_token() = *enrolments_.FindToken(asked.token_id());
  response.set_gate_address(gates_.begin()->second.address);
  response.set_pin(gates_.begin()->second.pin);
  return response;
}

absl::StatusOr<v1::RevokeTokenResponse> Coordinator::RevokeToken(
    const v1::RevokeTokenRequest& request, const EnrolmentCall& call) {
  RETURN_IF_ERROR(CheckWritable());
  ASSIGN_OR_RETURN(std::vector<storage::v1::Record> records,
                   enrolments_.Revoke(request.token_id(), request.islands(),
                                      call.clock));
  v1::RevokeTokenResponse response;
  *response.mutable_token() = *enrolments_.FindToken(request.token_id());
  if (request.islands()) {
    response.set_revoked_name_count(enrolments_.CountNames(response.token()));
  }
  EmitAudited(
      std::move(records), call.actor,
      Describe("token.revoke", response.token().run_id(), request.token_id(),
               request.islands()
                   ? absl::StrCat("and ", response.revoked_name_count(),
                                  " names")
                   : ""),
      call.now);
  *response.mutable_token() = *enrolments_.FindToken(request.token_id());
  if (!request.islands()) return response;
  const auto run = runs_.find(response.token().run_id());
  if (run != runs_.end() && !run->second->state().ended()) {
    RETURN_IF_ERROR(
        run->second->Step(event::RevokeToken{request.token_id()}, call.now)
            .status());
  }
  NoteNames(response.token().run_uid());
  return response;
}

absl::StatusOr<v1::RevokeIslandResponse> Coordinator::RevokeIsland(
    const v1::RevokeIslandRequest& request, const EnrolmentCall& call) {
  RETURN_IF_ERROR(CheckId("island_id", request.island_id()));
  ASSIGN_OR_RETURN(RunMachine* const run, FindRun(request.run_id()));
  RETURN_IF_ERROR(CheckWritable());
  const bool is_member =
      run->state().FindMember(request.island_id()) != nullptr;
  if (!is_member && enrolments_.FindIdentity(run->state().run_uid(),
                                             request.island_id()) == nullptr) {
    return Refuse(absl::StatusCode::kNotFound, "NO_SUCH_ISLAND",
                  absl::StrCat("run ", request.run_id(),
                               " has never had an island ",
                               request.island_id()));
  }
  ASSIGN_OR_RETURN(
      std::vector<storage::v1::Record> records,
      enrolments_.RevokeName(DescribeRun(*run), request.island_id()));
  EmitAudited(std::move(records), call.actor,
              Describe("island.revoke", request.run_id(), request.island_id()),
              call.now);
  if (is_member && !run->state().ended()) {
    RETURN_IF_ERROR(run->Step(event::RemoveIsland{request.island_id(),
                                                  /*readmit=*/false,
                                                  /*revoke=*/true},
                              call.now)
                        .status());
  }
  NoteNames(run->state().run_uid());
  return v1::RevokeIslandResponse();
}

absl::StatusOr<event::Join> Coordinator::MakeJoin(
    const v1::JoinRequest& request, std::string secret, const RunScope& scope,
    const RunMachine& run) const {
  if (scope.enrolled() &&
      run.state().spec().durability() == v1::DURABILITY_ISLAND) {
    return RefuseIslandDurability(run.state().run_id());
  }
  event::Join join{request, std::move(secret)};
  const storage::v1::IdentitySet* const identity =
      scope.enrolled() ? enrolments_.FindIdentity(run.state().run_uid(),
                                                  request.island_id())
                       : nullptr;
  if (identity != nullptr) {
    join.token_id = identity->token_id();
    join.weight_share_max = identity->weight_share_max();
  }
  return join;
}

absl::Status Coordinator::CheckScope(const RunScope& scope, Role role,
                                     const std::string& name,
                                     const RunMachine& run) const {
  const RunState& state = run.state();
  RETURN_IF_ERROR(CheckRunScope(scope, state.run_id(), state.run_uid(),
                                log_history_.cluster_id()));
  if (scope.enrolled()) {
    return enrolments_.CheckEnrolled(state.run_uid(), role, name,
                                     scope.key_sha256);
  }
  if (!enrolments_.IsOwnRevoked(state.run_uid(), name)) return absl::OkStatus();
  return RefuseRevoked(name, state.run_id());
}

absl::Status Coordinator::CheckReadmission(const std::string& name,
                                           const RunMachine& run) const {
  if (!enrolments_.IsRevoked(run.state().run_uid(), name)) {
    return absl::OkStatus();
  }
  return RefuseRevoked(name, run.state().run_id());
}

}  // namespace atl::coordinator
