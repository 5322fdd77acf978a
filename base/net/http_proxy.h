// Connections that may go through a proxy that knows HTTP's CONNECT.
//
// Thread-safe.

#pragma once

#include "absl/status/statusor.h"
#include "base/host_port/host_port.h"
#include "base/host_port/proxy.h"
#include "base/io/unique_fd.h"
#include "base/net/socket.h"

namespace atl::net {

// Connects to `target`: directly, or through `proxy` if it serves the target's
// host, whose name the proxy then looks up. What is sent on the socket reaches
// the target.
// Errors as Dial without a proxy. Those of the proxy name it; UNAVAILABLE also:
// it refuses. INVALID_ARGUMENT: the proxy has a fault.
absl::StatusOr<UniqueFd> Dial(const HostPort& target, const Proxy& proxy,
                              const WaitLimits& limits);

}  // namespace atl::net
