// Sockets: listening, dialling with a deadline.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/host_port/host_port.h"
#include "base/io/unique_fd.h"

namespace atl::collective {

// Listens at `endpoint`, non-blocking; port 0 takes a free one. UNAVAILABLE:
// the address is taken or not local. NOT_FOUND: the host has no address.
absl::StatusOr<UniqueFd> Listen(const HostPort& endpoint);

// Connects once, non-blocking, with Tune. UNAVAILABLE: nobody listens, or no
// answer until `deadline`. NOT_FOUND: the host has no address.
absl::StatusOr<UniqueFd> Dial(const HostPort& endpoint, absl::Time deadline);

// Sends small messages at once; detects a lost host in about 12 s.
void Tune(int fd);

// The own or the other address of a connected or listening socket.
absl::StatusOr<HostPort> LocalEndpoint(int fd);
absl::StatusOr<HostPort> PeerEndpoint(int fd);

// Waits until `fd` has one of poll's `events`. False after `deadline`.
bool WaitFor(int fd, short events, absl::Time deadline);

}  // namespace atl::collective
