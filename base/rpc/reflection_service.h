// Server reflection (v1alpha): tells a client the services of a port, and the
// .proto files that describe them.
//
// gRPC's own has a queue of calls without a bound.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "grpcpp/impl/service_type.h"

namespace atl::rpc {

// `service_names`: full, as "atoll.v1.RunService". Thread-safe.
std::unique_ptr<grpc::Service> MakeReflectionService(
    std::vector<std::string> service_names);

}  // namespace atl::rpc
