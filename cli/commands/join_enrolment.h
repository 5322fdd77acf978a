// The enrolment of `atoll join`: made at its start, renewed while it trains.
//
// Thread-compatible.

#pragma once

#include <optional>
#include <stop_token>

#include "absl/status/statusor.h"
#include "cli/context.h"
#include "cli/doctor/lent_machine.h"
#include "cli/enrol/enrolment.h"
#include "cli/enrol/join_enrolment.h"
#include "cli/volunteer/island_sandbox.h"
#include "worker/api/run_island.h"

namespace atl::cli {

// Enrols if the command line has a join string, or finds an earlier enrolment;
// nullopt: neither. The second life, inside the sandbox, takes the enrolment of
// the first. `lent`: what the run may need of this machine. `stop` ends the call.
absl::StatusOr<std::optional<Enrolment>> EnrolIsland(
    Context& context, const SandboxMark& sandbox, const JoinRequestFlags& flags,
    const Lent& lent, const std::stop_token& stop);

// Runs the island. If the machine slept or had no network, the certificate may
// have expired: the island then waits for the next certificate and continues.
absl::StatusOr<worker::IslandProgress> RunEnrolled(
    const worker::RunIslandOptions& island, const Enrolment& enrolment,
    EnrolmentRenewer& renewer);

}  // namespace atl::cli
