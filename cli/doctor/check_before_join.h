// The checks that `atoll join` makes before it consumes a use of a token.
//
// Thread-safe if the given call is.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "atoll/v1/run.pb.h"
#include "cli/doctor/lent_machine.h"
#include "cli/enrol/enrolment.h"
#include "cli/flags/lent_flags.h"

namespace atl::cli {

// `call`, with checks of milliseconds before a request to enrol: the clock
// against the gate's, the processor, the memory against the run's needs, and
// the disk of `state_directory`, all also against what is `lent`. A WARN is logged.
// FAILED_PRECONDITION (exit code 10): a check failed; the token keeps its use.
// A gate that refuses a TokenCheck is asked to enrol without the checks of run
// and clock: a key that has used up the token gets its certificate again. One
// that cannot be reached is not asked twice.
GateCall CheckBeforeJoin(GateCall call, const std::string& state_directory,
                         const Lent& lent);

// The check that an island makes before it creates anything: `spec` against
// what its machine lends (lent_machine.h). OK for a model that this
// program does not know.
absl::Status CheckRunSize(const v1::RunSpec& spec, const RunLimits& limits);

}  // namespace atl::cli
