// The GateCall of the real world.

#pragma once

#include "cli/enrol/enrolment.h"

namespace atl::cli {

// Errors as coordinator::GateClient.
absl::StatusOr<v1::GateResponse> CallGate(const GatePeer& peer,
                                          const v1::GateRequest& request);

}  // namespace atl::cli
