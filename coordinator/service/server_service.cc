#include "coordinator/service/server_service.h"

#include <utility>

#include "coordinator/client/plan_parts.h"
#include "coordinator/service/answer.h"
#include "coordinator/service/latest_writer.h"

namespace atl::coordinator {

grpc::ServerUnaryReactor* ServerServiceImpl::RegisterServer(
    grpc::CallbackServerContext* context,
    const v1::RegisterServerRequest* request,
    v1::RegisterServerResponse* response) {
  const absl::Status caller =
      CheckCaller(*context, rpc::Role::kServer, request->server_id());
  if (!caller.ok()) return AnswerError(context, caller);
  return Answer<v1::RegisterServerResponse>(
      loop_, context, response, [=](Coordinator& coordinator, absl::Time now) {
        return coordinator.RegisterServer(*request, now);
      });
}

grpc::ServerWriteReactor<v1::WatchServerPlanResponse>*
ServerServiceImpl::WatchServerPlan(grpc::CallbackServerContext* context,
                                   const v1::WatchServerPlanRequest* request) {
  auto writer =
      LatestWriter<v1::WatchServerPlanResponse, v1::ServerPlan>::Make(
          [](v1::ServerPlan plan) { return CutPlan(std::move(plan)); });
  const absl::Status caller =
      CheckCaller(*context, rpc::Role::kServer, request->server_id());
  if (caller.ok()) {
    loop_.WatchServer(request->server_id(), request->incarnation(), writer);
  } else {
    writer->End(caller);
  }
  return writer.get();
}

grpc::ServerUnaryReactor* ServerServiceImpl::ReportShards(
    grpc::CallbackServerContext* context,
    const v1::ReportShardsRequest* request,
    v1::ReportShardsResponse* response) {
  const absl::Status caller =
      CheckCaller(*context, rpc::Role::kServer, request->server_id());
  if (!caller.ok()) return AnswerError(context, caller);
  return Answer<v1::ReportShardsResponse>(
      loop_, context, response, [=](Coordinator& coordinator, absl::Time now) {
        return coordinator.ReportShards(*request, now);
      });
}

}  // namespace atl::coordinator
