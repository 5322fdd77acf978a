#include "coordinator/service/answer.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/rpc/call.h"

namespace atl::coordinator {

grpc::ServerUnaryReactor* AnswerError(grpc::CallbackServerContext* context,
                                      const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(rpc::ToGrpc(WithDefaultReason(status)));
  return reactor;
}

CallOrigin GetOrigin(const grpc::CallbackServerContext* context, size_t bytes,
                     std::string run_id) {
  CallOrigin origin = {.run_id = std::move(run_id),
                       .bytes = bytes,
                       .is_gone = [context] { return context->IsCancelled(); }};
  const absl::StatusOr<rpc::Caller> caller = rpc::GetCaller(*context);
  if (!caller.ok() || caller->id.empty()) return origin;
  origin.caller = absl::StrCat(RoleName(caller->role), ":", caller->id);
  if (caller->role == Role::kServer) origin.rank = CallRank::kServer;
  if (caller->role == Role::kIsland) origin.rank = CallRank::kIsland;
  if (caller->role == Role::kReader) origin.rank = CallRank::kReader;
  if (caller->scope.enrolled()) {
    // Each run has names of its own, and a call may name any run.
    origin.run_id = caller->scope.run_uid;
    absl::StrAppend(&origin.caller, " of run ", origin.run_id);
  }
  return origin;
}

absl::Status CheckRunFor(const Coordinator& coordinator,
                         const rpc::Caller& caller, const RunMachine& run) {
  const bool is_bound =
      caller.role == Role::kIsland || caller.role == Role::kReader;
  return is_bound ? coordinator.CheckScope(caller.scope, caller.role,
                                           caller.id, run)
                  : absl::OkStatus();
}

EventLoop::RunCheck ChecksRunFor(rpc::Caller caller) {
  return [caller = std::move(caller)](const Coordinator& coordinator,
                                      const RunMachine& run) {
    return CheckRunFor(coordinator, caller, run);
  };
}

absl::StatusOr<RunMachine*> FindRunFor(Coordinator& coordinator,
                                       const rpc::Caller& caller,
                                       const std::string& run_id) {
  RETURN_IF_ERROR(coordinator.CheckCluster(caller.scope));
  ASSIGN_OR_RETURN(RunMachine* const run, coordinator.FindRun(run_id));
  RETURN_IF_ERROR(CheckRunFor(coordinator, caller, *run));
  return run;
}

Actor GetActor(const grpc::CallbackServerContext& context) {
  return {rpc::GetCallerName(context), rpc::GetCertificateSha256(context)};
}

absl::Status CheckCaller(const grpc::CallbackServerContext& context,
                         Role role, const std::string& id) {
  ASSIGN_OR_RETURN(const rpc::Caller caller, rpc::GetCaller(context));
  return rpc::CheckActsFor(caller, role, id);
}

std::string SessionSecret(const grpc::CallbackServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(rpc::kSessionMetadata);
  if (found == metadata.end()) return "";
  const absl::string_view hex(found->second.data(), found->second.size());
  if (hex.size() != 64) return "";
  for (char c : hex) {
    if (!absl::ascii_isxdigit(c)) return "";
  }
  return absl::HexStringToBytes(hex);
}

}  // namespace atl::coordinator
