// The GateCall of the real world.

#pragma once

#include "base/host_port/proxy.h"
#include "cli/enrol/enrolment.h"

namespace atl::cli {

// Calls gates through `proxy`. Errors as coordinator::GateClient.
GateCall MakeGateCall(const Proxy& proxy);

}  // namespace atl::cli
