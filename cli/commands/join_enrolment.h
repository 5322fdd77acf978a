// The enrolment of `atoll join`: made at its start, renewed while it trains.
// Also opens the data of the run.
//
// Thread-compatible.

#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "base/rpc/channel.h"
#include "cli/context.h"
#include "cli/doctor/lent_machine.h"
#include "cli/enrol/enrolment.h"
#include "cli/enrol/join_enrolment.h"
#include "cli/volunteer/island_sandbox.h"
#include "worker/api/run_data.h"
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

struct JoinedRun {
  std::string coordinator_address;  // host:port
  std::string run_id;
};

// Opens stores of URLs that the run names. Data that is not public is read with
// the token of an enrolment, or by URLs that the coordinator signs. `stop` ends
// a call of the coordinator.
worker::StoreOpener MakeDataOpener(const Context& context, const JoinedRun& run,
                                   const rpc::Security& security,
                                   const std::optional<Enrolment>& enrolment,
                                   const std::stop_token& stop);

}  // namespace atl::cli
