// The security flags of every program.

#pragma once

#include "CLI/App.hpp"
#include "base/rpc/certificates/tls.h"

namespace atl::rpc {

// Adds --tls-cert, --tls-key, --tls-ca and --insecure to `app`. `security` must
// outlive the parse.
void AddSecurityFlags(CLI::App& app, Security& security);

// Adds --tls-island-ca, for a program that islands call.
void AddIslandCaFlag(CLI::App& app, Security& security);

}  // namespace atl::rpc
