// The way in which a joining island reads the data of its run.

#pragma once

#include <optional>
#include <stop_token>
#include <string>

#include "base/rpc/channel.h"
#include "cli/context.h"
#include "cli/enrol/enrolment.h"
#include "worker/api/run_data.h"

namespace atl::cli {

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
