// Asks the coordinator for a signed URL of a run's data. Thread-safe.

#pragma once

#include <stop_token>
#include <string>

#include "absl/status/statusor.h"
#include "base/rpc/channel.h"

namespace atl::coordinator {

// A URL that reads `path`, relative to the directory of the run's manifest. It
// is a secret. `address` is host:port. Asks once, with a deadline, on a
// connection of its own. A request of `stop` ends the call at once.
//
// Errors: as rpc::MakeChannel and IslandService.SignDataUrls; UNAVAILABLE or
// DEADLINE_EXCEEDED if the coordinator is away; CANCELLED: stopped.
absl::StatusOr<std::string> SignDataUrl(const std::string& address,
                                        const rpc::ChannelOptions& channel,
                                        const std::string& run_id,
                                        const std::string& path,
                                        const std::stop_token& stop);

}  // namespace atl::coordinator
