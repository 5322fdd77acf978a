// Parses and formats "HOST:PORT". Pure. Thread-safe.

#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace atl {

// A host (a name or an IP address) and a port.
struct HostPort {
  std::string host;  // Without brackets. A loopback host as ToComparedHost.
  int port = 0;      // [0, 65535].
};

// Parses "host:port" or "[v6]:port".
// INVALID_ARGUMENT: not of that form.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view address);

// Formats an address. An IPv6 address gets brackets.
std::string JoinHostPort(absl::string_view host, int port);

// A host in the form in which hosts are compared: lower case, without the dot
// that may end a name. To be compared, not dialled: with the dot a resolver
// looks in no other domain.
std::string ToComparedHost(absl::string_view host);

// True for "localhost", 127.0.0.0/8 (also within IPv6) and ::1, in any form that
// means the same host.
bool IsLoopbackHost(absl::string_view host);

// "%41b+" gives "Ab+"; nullopt: a "%" without two hexadecimal digits.
std::optional<std::string> PercentDecode(absl::string_view text);

}  // namespace atl
