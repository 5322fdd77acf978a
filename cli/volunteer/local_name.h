// The path of the socket of a running `atoll join`. Pure.

#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace atl::cli {

// The directory of the sockets of a user's islands.
std::string LocalDirectory(absl::string_view state_directory);

// The name of an island's socket: the same for every join that would continue
// from the same local checkpoint, in `directory`.
std::string LocalName(absl::string_view directory,
                      absl::string_view run_id, absl::string_view island_id);

}  // namespace atl::cli
