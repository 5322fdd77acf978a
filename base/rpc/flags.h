// The security flags of every program.

#pragma once

#include "CLI/App.hpp"
#include "base/host_port/proxy.h"
#include "base/rpc/certificates/tls.h"

namespace atl::rpc {

// Adds --tls-cert, --tls-key, --tls-ca and --insecure to `app`. `security` must
// outlive the parse.
void AddSecurityFlags(CLI::App& app, Security& security);

// Adds --proxy, for a program that dials others.
void AddProxyFlag(CLI::App& app, Proxy& proxy);

// Adds --tls-island-ca, for a program that islands call.
void AddIslandCaFlag(CLI::App& app, Security& security);

}  // namespace atl::rpc
