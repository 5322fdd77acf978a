// Flags that several programs have.
//
// In each function the last argument must outlive the parse.

#pragma once

#include <vector>

#include "base/flags/flags.h"
#include "base/host_port/network.h"
#include "base/host_port/proxy.h"
#include "base/metrics/metrics_listener.h"
#include "base/rpc/certificates/tls.h"

namespace atl::flags {

// Adds --tls-dir, --tls-cert, --tls-key, --tls-ca and --insecure.
void AddSecurityFlags(Command& command, rpc::Security& security);

// Adds --tls-island-ca, for a program that islands call.
void AddIslandCaFlag(Command& command, rpc::Security& security);

// Adds --proxy, for a program that dials others.
void AddProxyFlag(Command& command, Proxy& proxy);

// Adds --trusted-proxy, for a program that strangers reach.
void AddTrustedProxyFlag(Command& command, std::vector<Network>& networks);

// Adds --metrics-listen and --metrics-port-file.
void AddMetricsFlags(Command& command, MetricsListenerOptions& options);

}  // namespace atl::flags
