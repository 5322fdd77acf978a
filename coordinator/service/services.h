// The coordinator's five services. They hand each call to the core or the
// store, and hold no rule. Thread-safe. `loop` must outlive a service.

#pragma once

#include <memory>

#include "coordinator/service/event_loop.h"
#include "grpcpp/impl/service_type.h"

namespace atl::coordinator {

std::unique_ptr<grpc::Service> MakeRunService(EventLoop& loop);
std::unique_ptr<grpc::Service> MakeTrainingStateService(EventLoop& loop);
std::unique_ptr<grpc::Service> MakeIslandService(EventLoop& loop);
std::unique_ptr<grpc::Service> MakeServerService(EventLoop& loop);
std::unique_ptr<grpc::Service> MakeEnrolmentService(EventLoop& loop);

}  // namespace atl::coordinator
