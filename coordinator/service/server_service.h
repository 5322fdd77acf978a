// ServerService: hands each call to the core. Holds no rule. Thread-safe.

#pragma once

#include "atoll/v1/server_service.grpc.pb.h"
#include "coordinator/service/event_loop.h"

namespace atl::coordinator {

class ServerServiceImpl : public v1::ServerService::CallbackService {
 public:
  // `loop` must outlive the service.
  explicit ServerServiceImpl(EventLoop& loop) : loop_(loop) {}

  grpc::ServerUnaryReactor* RegisterServer(
      grpc::CallbackServerContext* context,
      const v1::RegisterServerRequest* request,
      v1::RegisterServerResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchServerPlanResponse>* WatchServerPlan(
      grpc::CallbackServerContext* context,
      const v1::WatchServerPlanRequest* request) override;
  grpc::ServerUnaryReactor* ReportShards(
      grpc::CallbackServerContext* context,
      const v1::ReportShardsRequest* request,
      v1::ReportShardsResponse* response) override;

 private:
  EventLoop& loop_;
};

}  // namespace atl::coordinator
