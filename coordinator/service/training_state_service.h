// TrainingStateService: hands calls to the core or the store. Thread-safe.

#pragma once

#include "atoll/v1/training_state_service.grpc.pb.h"
#include "coordinator/service/event_loop.h"

namespace atl::coordinator {

class TrainingStateServiceImpl
    : public v1::TrainingStateService::CallbackService {
 public:
  // `loop` must outlive the service.
  explicit TrainingStateServiceImpl(EventLoop& loop) : loop_(loop) {}

  grpc::ServerUnaryReactor* GetRunState(
      grpc::CallbackServerContext* context,
      const v1::GetRunStateRequest* request,
      v1::GetRunStateResponse* response) override;
  grpc::ServerUnaryReactor* ListIslands(
      grpc::CallbackServerContext* context,
      const v1::ListIslandsRequest* request,
      v1::ListIslandsResponse* response) override;
  grpc::ServerUnaryReactor* ListRounds(
      grpc::CallbackServerContext* context,
      const v1::ListRoundsRequest* request,
      v1::ListRoundsResponse* response) override;
  grpc::ServerUnaryReactor* GetMetrics(
      grpc::CallbackServerContext* context,
      const v1::GetMetricsRequest* request,
      v1::GetMetricsResponse* response) override;
  grpc::ServerWriteReactor<v1::WatchRunResponse>* WatchRun(
      grpc::CallbackServerContext* context,
      const v1::WatchRunRequest* request) override;
  grpc::ServerUnaryReactor* ListCheckpoints(
      grpc::CallbackServerContext* context,
      const v1::ListCheckpointsRequest* request,
      v1::ListCheckpointsResponse* response) override;

 private:
  EventLoop& loop_;
};

}  // namespace atl::coordinator
