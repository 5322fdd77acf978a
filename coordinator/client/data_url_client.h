// Asks the coordinator for a signed URL of a run's data. Thread-safe.

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "base/rpc/channel.h"

namespace atl::coordinator {

// A URL that reads `path`, relative to the directory of the run's manifest. It
// is a secret. `address` is host:port. Asks once, with a deadline, on a
// connection of its own.
//
// Errors: as rpc::MakeChannel and IslandService.SignDataUrls; UNAVAILABLE or
// DEADLINE_EXCEEDED if the coordinator is away.
absl::StatusOr<std::string> SignDataUrl(const std::string& address,
                                        const rpc::ChannelOptions& channel,
                                        const std::string& run_id,
                                        const std::string& path);

}  // namespace atl::coordinator
