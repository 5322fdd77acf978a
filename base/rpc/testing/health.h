// Asks the standard health service of a server whether it is serving.

#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "grpcpp/channel.h"

namespace atl::rpc {

// OK if grpc.health.v1.Health answers SERVING for `service` within `timeout`.
// The empty name stands for the whole server.
// UNAVAILABLE: it cannot be reached, or gives another answer: the process is
// starting, recovering or stopping.
// NOT_FOUND: it does not know the name.
// INVALID_ARGUMENT: the name has more than 127 bytes.
// DEADLINE_EXCEEDED: no answer.
absl::Status CheckServing(const std::shared_ptr<grpc::Channel>& channel,
                          absl::Duration timeout,
                          absl::string_view service = "");

}  // namespace atl::rpc
