#include "coordinator/service/island_service.h"

#include <functional>

#include "base/status/refusal.h"
#include "base/status/status_macros.h"
#include "base/time/proto_time.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/service/answer.h"
#include "coordinator/service/latest_writer.h"
#include "openssl/rand.h"

namespace atl::coordinator {
namespace {

constexpr int kSecretBytes = 32;

absl::StatusOr<std::string> MakeSecret() {
  std::string secret(kSecretBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(secret.data()),
                 kSecretBytes) != 1) {
    return absl::UnavailableError("the machine gives no random bytes");
  }
  return secret;
}

template <typename Request>
IslandCredentials ReadCredentials(const grpc::CallbackServerContext& context,
                                  const Request& request) {
  return {request.island_id(), request.island_epoch(), SessionSecret(context)};
}

// Answers a member's call: `decide` gets the run and the caller.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* AnswerMember(
    EventLoop& loop, grpc::CallbackServerContext* context,
    const Request* request, Response* response,
    std::function<absl::StatusOr<Response>(
        RunMachine&, const IslandCredentials&, absl::Time)>
        decide) {
  const absl::Status caller =
      CheckCaller(*context, rpc::Role::kIsland, request->island_id());
  if (!caller.ok()) return AnswerError(context, caller);
  return Answer<Response>(
      loop, context, response,
      [request, island = ReadCredentials(*context, *request),
       decide = std::move(decide)](Coordinator& coordinator,
                                   absl::Time now) -> absl::StatusOr<Response> {
        ASSIGN_OR_RETURN(RunMachine* const run,
                         coordinator.FindRun(request->run_id()));
        return decide(*run, island, now);
      });
}

}  // namespace

grpc::ServerUnaryReactor* IslandServiceImpl::Join(
    grpc::CallbackServerContext* context, const v1::JoinRequest* request,
    v1::JoinResponse* response) {
  absl::Status status =
      CheckCaller(*context, rpc::Role::kIsland, request->island_id());
  absl::StatusOr<std::string> secret = MakeSecret();
  if (status.ok()) status = secret.status();
  if (!status.ok()) return AnswerError(context, status);
  return Answer<v1::JoinResponse>(
      loop_, context, response,
      [request, secret = *secret](Coordinator& coordinator, absl::Time now)
          -> absl::StatusOr<v1::JoinResponse> {
        ASSIGN_OR_RETURN(RunMachine* const run,
                         coordinator.FindRun(request->run_id()));
        ASSIGN_OR_RETURN(RunAnswer answer,
                         run->Step(event::Join{*request, secret}, now));
        v1::JoinResponse& joined = answer.joined;
        *joined.mutable_run() = BuildRun(*run, /*with_tensors=*/true);
        *joined.mutable_plan() = coordinator.IslandPlan(*run, joined.slot());
        return joined;
      });
}

grpc::ServerUnaryReactor* IslandServiceImpl::ReportReady(
    grpc::CallbackServerContext* context, const v1::ReportReadyRequest* request,
    v1::ReportReadyResponse* response) {
  return AnswerMember<v1::ReportReadyRequest, v1::ReportReadyResponse>(
      loop_, context, request, response,
      [request](RunMachine& run, const IslandCredentials& island,
                absl::Time now) -> absl::StatusOr<v1::ReportReadyResponse> {
        RETURN_IF_ERROR(
            run.Step(event::Ready{island, request->commit_seq()}, now)
                .status());
        return v1::ReportReadyResponse();
      });
}

grpc::ServerUnaryReactor* IslandServiceImpl::Heartbeat(
    grpc::CallbackServerContext* context, const v1::HeartbeatRequest* request,
    v1::HeartbeatResponse* response) {
  return AnswerMember<v1::HeartbeatRequest, v1::HeartbeatResponse>(
      loop_, context, request, response,
      [](RunMachine& run, const IslandCredentials& island,
         absl::Time now) -> absl::StatusOr<v1::HeartbeatResponse> {
        RETURN_IF_ERROR(run.Step(event::Heartbeat{island}, now).status());
        v1::HeartbeatResponse renewed;
        *renewed.mutable_lease_duration() =
            ToProto(IslandLeaseDuration(run.state().spec()));
        return renewed;
      });
}

grpc::ServerWriteReactor<v1::WatchPlanResponse>* IslandServiceImpl::WatchPlan(
    grpc::CallbackServerContext* context, const v1::WatchPlanRequest* request) {
  auto writer = LatestWriter<v1::WatchPlanResponse, v1::IslandPlan>::Make();
  const absl::Status caller =
      CheckCaller(*context, rpc::Role::kIsland, request->island_id());
  if (caller.ok()) {
    loop_.WatchIsland(request->run_id(), ReadCredentials(*context, *request),
                      writer);
  } else {
    writer->End(caller);
  }
  return writer.get();
}

grpc::ServerUnaryReactor* IslandServiceImpl::ReportProgress(
    grpc::CallbackServerContext* context,
    const v1::ReportProgressRequest* request,
    v1::ReportProgressResponse* response) {
  return AnswerMember<v1::ReportProgressRequest, v1::ReportProgressResponse>(
      loop_, context, request, response,
      [request](RunMachine& run, const IslandCredentials& island,
                absl::Time now) -> absl::StatusOr<v1::ReportProgressResponse> {
        RETURN_IF_ERROR(
            run.Step(event::Progress{island, *request}, now).status());
        return v1::ReportProgressResponse();
      });
}

grpc::ServerUnaryReactor* IslandServiceImpl::Leave(
    grpc::CallbackServerContext* context, const v1::LeaveRequest* request,
    v1::LeaveResponse* response) {
  return AnswerMember<v1::LeaveRequest, v1::LeaveResponse>(
      loop_, context, request, response,
      [](RunMachine& run, const IslandCredentials& island,
         absl::Time now) -> absl::StatusOr<v1::LeaveResponse> {
        RETURN_IF_ERROR(run.Step(event::Leave{island}, now).status());
        return v1::LeaveResponse();
      });
}

}  // namespace atl::coordinator
