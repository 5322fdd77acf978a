// Counts the calls that a gRPC server handles, as gRPC's proposal A66 names
// them:
//
//   grpc_server_call_started_total{grpc_method}
//   grpc_server_call_duration_seconds{grpc_method,grpc_status}
//
// grpc_method is "atoll.v1.RunService/GetRun", or "other" for a method that no
// service has; grpc_status is "OK", "UNAVAILABLE", ... A call, stream or not,
// counts once when its handler hands over the status, with its whole duration.
// A peer that has received the status finds it counted. Refused calls count too.
// Thread-safe.

#pragma once

#include <memory>

#include "base/metrics/metrics.h"
#include "grpcpp/support/server_interceptor.h"

namespace atl::rpc {

// One for each RpcServer; they share the families of `metrics`, which must
// outlive the server.
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
MakeCallMetrics(Metrics& metrics);

}  // namespace atl::rpc
