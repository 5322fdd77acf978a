// The checks that `atoll join` makes before it consumes a use of a token.
//
// Thread-safe if the given call is.

#pragma once

#include <string>

#include "cli/enrol/enrolment.h"

namespace atl::cli {

// `call`, with checks of milliseconds before a request to enrol: the clock
// against the gate's, the processor, the memory against the run's needs, and
// the disk of `state_directory`. A WARN is logged.
// FAILED_PRECONDITION (exit code 10): a check failed; the token keeps its use.
// A gate that refuses a TokenCheck is asked to enrol without the checks of run
// and clock: a key that has used up the token gets its certificate again. One
// that cannot be reached is not asked twice.
GateCall CheckBeforeJoin(GateCall call, const std::string& state_directory);

}  // namespace atl::cli
