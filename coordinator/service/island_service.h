// IslandService: hands each call to the core. Holds no rule. Thread-safe.

#pragma once

#include "atoll/v1/island_service.grpc.pb.h"
#include "coordinator/service/event_loop.h"

namespace atl::coordinator {

class IslandServiceImpl : public v1::IslandService::CallbackService {
 public:
  // `loop` must outlive the service.
  explicit IslandServiceImpl(EventLoop& loop) : loop_(loop) {}

  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const v1::JoinRequest* request,
                                 v1::JoinResponse* response) override;
  grpc::ServerUnaryReactor* ReportReady(
      grpc::CallbackServerContext* context,
      const v1::ReportReadyRequest* request,
      v1::ReportReadyResponse* response) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchPlanResponse>* WatchPlan(
      grpc::CallbackServerContext* context,
      const v1::WatchPlanRequest* request) override;
  grpc::ServerUnaryReactor* ReportProgress(
      grpc::CallbackServerContext* context,
      const v1::ReportProgressRequest* request,
      v1::ReportProgressResponse* response) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const v1::LeaveRequest* request,
                                  v1::LeaveResponse* response) override;

 private:
  EventLoop& loop_;
};

}  // namespace atl::coordinator
