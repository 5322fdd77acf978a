// Asks a server's standard health service whether it serves.

#ifndef BASE_RPC_HEALTH_H_
#define BASE_RPC_HEALTH_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"

namespace atl::rpc {

// OK if grpc.health.v1.Health answers SERVING within `timeout`.
//
// UNAVAILABLE: it cannot be reached, or answers anything else: the process is
// starting, recovering or stopping.
// DEADLINE_EXCEEDED: no answer.
absl::Status CheckServing(const std::shared_ptr<grpc::Channel>& channel,
                          absl::Duration timeout);

}  // namespace atl::rpc

#endif  // BASE_RPC_HEALTH_H_
