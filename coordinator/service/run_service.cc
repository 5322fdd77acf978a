#include "coordinator/service/run_service.h"

#include "base/status/status_macros.h"
#include "coordinator/core/outputs/plans.h"
#include "coordinator/core/run_queries.h"
#include "coordinator/service/answer.h"

namespace atl::coordinator {
namespace {

// Hands `event` to a run and answers with the run's new state.
template <typename Request, typename Response, typename Event>
grpc::ServerUnaryReactor* Steer(EventLoop& loop,
                                grpc::CallbackServerContext* context,
                                const Request* request, Response* response,
                                Event event) {
  return Answer<Response>(
      loop, context, response,
      [=](Coordinator& coordinator,
          absl::Time now) -> absl::StatusOr<Response> {
        ASSIGN_OR_RETURN(RunMachine* const run,
                         coordinator.FindRun(request->run_id()));
        RETURN_IF_ERROR(run->Step(event, now).status());
        Response steered;
        *steered.mutable_run() = BuildRun(*run, /*with_tensors=*/true);
        return steered;
      });
}

}  // namespace

grpc::ServerUnaryReactor* RunServiceImpl::CreateRun(
    grpc::CallbackServerContext* context, const v1::CreateRunRequest* request,
    v1::CreateRunResponse* response) {
  return Answer<v1::CreateRunResponse>(
      loop_, context, response, [=](Coordinator& coordinator, absl::Time now) {
        return coordinator.CreateRun(*request, now);
      });
}

grpc::ServerUnaryReactor* RunServiceImpl::GetRun(
    grpc::CallbackServerContext* context, const v1::GetRunRequest* request,
    v1::GetRunResponse* response) {
  return Answer<v1::GetRunResponse>(
      loop_, context, response,
      [=](Coordinator& coordinator,
          absl::Time now) -> absl::StatusOr<v1::GetRunResponse> {
        ASSIGN_OR_RETURN(RunMachine* const run,
                         coordinator.FindRun(request->run_id()));
        v1::GetRunResponse found;
        *found.mutable_run() = BuildRun(*run, /*with_tensors=*/true);
        return found;
      });
}

grpc::ServerUnaryReactor* RunServiceImpl::ListRuns(
    grpc::CallbackServerContext* context, const v1::ListRunsRequest* request,
    v1::ListRunsResponse* response) {
  return Answer<v1::ListRunsResponse>(
      loop_, context, response, [=](Coordinator& coordinator, absl::Time now) {
        return coordinator.ListRuns(*request);
      });
}

grpc::ServerUnaryReactor* RunServiceImpl::PauseRun(
    grpc::CallbackServerContext* context, const v1::PauseRunRequest* request,
    v1::PauseRunResponse* response) {
  return Steer(loop_, context, request, response, event::Pause());
}

grpc::ServerUnaryReactor* RunServiceImpl::ResumeRun(
    grpc::CallbackServerContext* context, const v1::ResumeRunRequest* request,
    v1::ResumeRunResponse* response) {
  return Steer(loop_, context, request, response, event::Resume());
}

grpc::ServerUnaryReactor* RunServiceImpl::CancelRun(
    grpc::CallbackServerContext* context, const v1::CancelRunRequest* request,
    v1::CancelRunResponse* response) {
  return Steer(loop_, context, request, response, event::Cancel());
}

grpc::ServerUnaryReactor* RunServiceImpl::RemoveIsland(
    grpc::CallbackServerContext* context,
    const v1::RemoveIslandRequest* request,
    v1::RemoveIslandResponse* response) {
  return Steer(loop_, context, request, response,
               event::RemoveIsland{request->island_id(), request->readmit()});
}

grpc::ServerUnaryReactor* RunServiceImpl::ExportCheckpoint(
    grpc::CallbackServerContext* context,
    const v1::ExportCheckpointRequest* request,
    v1::ExportCheckpointResponse* response) {
  return Answer<v1::ExportCheckpointResponse>(
      loop_, context, response,
      [=](Coordinator& coordinator,
          absl::Time now) -> absl::StatusOr<v1::ExportCheckpointResponse> {
        ASSIGN_OR_RETURN(RunMachine* const run,
                         coordinator.FindRun(request->run_id()));
        ASSIGN_OR_RETURN(RunAnswer answer,
                         run->Step(event::Export{*request}, now));
        v1::ExportCheckpointResponse& pinned = answer.exported;
        if (request->release()) return pinned;
        *pinned.mutable_run() = BuildRun(*run, /*with_tensors=*/true);
        *pinned.mutable_shards() = BuildPlacement(run->state(), coordinator);
        pinned.set_placement_epoch(run->state().placement_epoch());
        return pinned;
      });
}

}  // namespace atl::coordinator
