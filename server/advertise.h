// The address that islands dial, from --advertise. Pure. Thread-safe.
//
// The flag is a template, so that all pods of a StatefulSet have the same
// command line:
//
//   {server-id}   the server's id: "atoll-server-2"
//   {ordinal}     the decimal number at the id's end: 2
//   {ordinal+N}   that number plus N, as node ports are counted
//   {port}        the port that the server listens on

#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl::server {

// INVALID_ARGUMENT: a placeholder is unknown or has no end; {ordinal} is used
// and `server_id` does not end in a number; the result is not HOST:PORT with a
// port from 1 to 65535. The message names the placeholder or the result.
absl::StatusOr<std::string> ResolveAdvertise(absl::string_view advertise,
                                             absl::string_view server_id,
                                             int port);

}  // namespace atl::server
