// RunService: hands each call to the core. Holds no rule. Thread-safe.

#pragma once

#include "atoll/v1/run_service.grpc.pb.h"
#include "coordinator/service/event_loop.h"

namespace atl::coordinator {

class RunServiceImpl : public v1::RunService::CallbackService {
 public:
  // `loop` must outlive the service.
  explicit RunServiceImpl(EventLoop& loop) : loop_(loop) {}

  grpc::ServerUnaryReactor* CreateRun(grpc::CallbackServerContext* context,
                                      const v1::CreateRunRequest* request,
                                      v1::CreateRunResponse* response) override;
  grpc::ServerUnaryReactor* GetRun(grpc::CallbackServerContext* context,
                                   const v1::GetRunRequest* request,
                                   v1::GetRunResponse* response) override;
  grpc::ServerUnaryReactor* ListRuns(grpc::CallbackServerContext* context,
                                     const v1::ListRunsRequest* request,
                                     v1::ListRunsResponse* response) override;
  grpc::ServerUnaryReactor* PauseRun(grpc::CallbackServerContext* context,
                                     const v1::PauseRunRequest* request,
                                     v1::PauseRunResponse* response) override;
  grpc::ServerUnaryReactor* ResumeRun(grpc::CallbackServerContext* context,
                                      const v1::ResumeRunRequest* request,
                                      v1::ResumeRunResponse* response) override;
  grpc::ServerUnaryReactor* CancelRun(grpc::CallbackServerContext* context,
                                      const v1::CancelRunRequest* request,
                                      v1::CancelRunResponse* response) override;
  grpc::ServerUnaryReactor* RemoveIsland(
      grpc::CallbackServerContext* context,
      const v1::RemoveIslandRequest* request,
      v1::RemoveIslandResponse* response) override;
  grpc::ServerUnaryReactor* ExportCheckpoint(
      grpc::CallbackServerContext* context,
      const v1::ExportCheckpointRequest* request,
      v1::ExportCheckpointResponse* response) override;

 private:
  EventLoop& loop_;
};

}  // namespace atl::coordinator
