// A connection through a proxy that knows HTTP's CONNECT.
//
// Thread-safe.

#pragma once

#include "absl/status/statusor.h"
#include "base/host_port/host_port.h"
#include "base/host_port/proxy.h"
#include "base/io/unique_fd.h"
#include "base/rpc/tls_stream/socket.h"

namespace atl::rpc {

// Connects to `proxy` and through it to `target`, whose name the proxy looks
// up. What is sent on the socket reaches the target.
// Errors as Dial; UNAVAILABLE also: the proxy refuses. Messages name the proxy.
// INVALID_ARGUMENT: the proxy has a fault.
absl::StatusOr<UniqueFd> DialThroughProxy(const Proxy& proxy,
                                          const HostPort& target,
                                          const WaitLimits& limits);

}  // namespace atl::rpc
