// Hands a unary call to the event loop and answers it. Thread-safe.

#pragma once

#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/rpc/authorization.h"
#include "base/rpc/status.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "coordinator/service/event_loop.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/server_callback.h"

namespace atl::coordinator {

// Answers the call with an error at once.
grpc::ServerUnaryReactor* AnswerError(grpc::CallbackServerContext* context,
                                      const absl::Status& status);

// OK if the caller's certificate is for the run. Errors: as
// Coordinator::CheckScope.
absl::Status CheckRunFor(const Coordinator& coordinator,
                         const rpc::Caller& caller, const RunMachine& run);
// The same as a function.
EventLoop::RunCheck ChecksRunFor(rpc::Caller caller);
// The run, if the caller's certificate is for it. Errors: as
// Coordinator::FindRun and CheckScope.
absl::StatusOr<RunMachine*> FindRunFor(Coordinator& coordinator,
                                       const rpc::Caller& caller,
                                       const std::string& run_id);

// The calling peer, for the audit log.
Actor GetActor(const grpc::CallbackServerContext& context);

// Where a call with `bytes` that names a run comes from. `context` lives until
// it is answered.
CallOrigin GetOrigin(const grpc::CallbackServerContext* context, size_t bytes,
                     std::string run_id = "");
template <typename Request>
CallOrigin GetOrigin(const grpc::CallbackServerContext* context,
                     const Request& request) {
  std::string run_id;
  if constexpr (requires { request.run_id(); }) run_id = request.run_id();
  return GetOrigin(context, request.ByteSizeLong(), std::move(run_id));
}

// Answers the call with the result of `decide`, once its records are durable.
template <typename Response, typename Request>
grpc::ServerUnaryReactor* Answer(
    EventLoop& loop, grpc::CallbackServerContext* context,
    const Request* request, Response* response,
    std::function<absl::StatusOr<Response>(Coordinator&, absl::Time)> decide) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  loop.Post<Response>(
      std::move(decide),
      [reactor, response](absl::StatusOr<Response> result) {
        if (result.ok()) *response = *std::move(result);
        reactor->Finish(rpc::ToGrpc(WithDefaultReason(result.status())));
      },
      GetOrigin(context, *request));
  return reactor;
}

// The same for the run that `request` names, if the caller's certificate is for
// it. NOT_FOUND: the run does not exist. Else as Coordinator::CheckScope.
template <typename Request, typename Response, typename Decide>
grpc::ServerUnaryReactor* AnswerForRun(EventLoop& loop,
                                       grpc::CallbackServerContext* context,
                                       const Request* request,
                                       Response* response, Decide decide) {
  const absl::StatusOr<rpc::Caller> caller = rpc::GetCaller(*context);
  if (!caller.ok()) return AnswerError(context, caller.status());
  return Answer<Response>(
      loop, context, request, response,
      [request, caller = *caller, decide = std::move(decide)](
          Coordinator& coordinator,
          absl::Time now) -> absl::StatusOr<Response> {
        ASSIGN_OR_RETURN(RunMachine* const run,
                         FindRunFor(coordinator, caller, request->run_id()));
        return decide(coordinator, *run, now);
      });
}

// OK if the caller may act for `id`. Errors: as base/rpc/authorization.h.
absl::Status CheckCaller(const grpc::CallbackServerContext& context,
                         Role role, const std::string& id);

// The secret in the metadata "atoll-session"; empty if missing or not hex.
std::string SessionSecret(const grpc::CallbackServerContext& context);

}  // namespace atl::coordinator
