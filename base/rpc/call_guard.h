// Guards one port against callers who open calls faster than they end, and
// tells the port's listener whose a connection is.
//
// Thread-safe.

#pragma once

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/net/bounded_listener.h"
#include "base/rpc/call_quota.h"
#include "grpcpp/support/server_interceptor.h"

namespace atl::rpc {

class CallGuard {
 public:
  explicit CallGuard(std::shared_ptr<net::BoundedListener> listener)
      : listener_(std::move(listener)) {}

  // A call of the caller `name`, with this certificate, comes to the
  // authentication step.
  // RESOURCE_EXHAUSTED: it has too many.
  absl::Status Admit(absl::string_view certificate_pem,
                     absl::string_view name);

  // Follows the calls of a server from their handlers on. The guard must
  // outlive the server.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>
  MakeInterceptors();

 private:
  class Call;
  class Factory;

  const std::shared_ptr<net::BoundedListener> listener_;
  CallQuota quota_;
};

}  // namespace atl::rpc
