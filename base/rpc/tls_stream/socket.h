// Sockets whose every wait has a deadline and can be stopped: listening,
// dialling, waiting.
//
// Thread-safe.

#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/host_port/host_port.h"
#include "base/io/unique_fd.h"

namespace atl::rpc {

// How long an operation may wait.
struct WaitLimits {
  absl::Time deadline;  // Of SystemClock().
  // A waker (base/io/unique_fd.h) that stops the wait once it is set. -1: none.
  int stop_fd = -1;
};

// Waits until `fd` has one of poll's `events`, or an error to be read.
// DEADLINE_EXCEEDED: the deadline is over, whatever `fd` has.
// CANCELLED: stopped.
absl::Status WaitForSocket(int fd, short events, const WaitLimits& limits);

// Listens, non-blocking; port 0 takes a free one.
// NOT_FOUND: the host has no address. FAILED_PRECONDITION: the address is taken
// or not of this machine; the message says how to find out.
absl::StatusOr<UniqueFd> Listen(const HostPort& address);

// The address that a socket is bound to.
absl::StatusOr<HostPort> LocalAddress(int fd);

// Keeps few bytes in the machine that are not on their way yet, so that what is
// written last arrives soon.
void BoundUnsentBytes(int fd);

// The numeric addresses of a host, in the order in which Dial tries them.
// NOT_FOUND: there are none. UNAVAILABLE: no name server answers.
// DEADLINE_EXCEEDED, CANCELLED: as WaitForSocket.
absl::StatusOr<std::vector<std::string>> FindAddresses(
    const HostPort& address, const WaitLimits& limits);

// Connects, non-blocking, to the first address of the host that answers. Each
// address has an equal share of the time that is left.
// NOT_FOUND: the host has no address.
// UNAVAILABLE: no address answers; the message is of the last one.
// DEADLINE_EXCEEDED, CANCELLED: as WaitForSocket.
absl::StatusOr<UniqueFd> Dial(const HostPort& address,
                              const WaitLimits& limits);

}  // namespace atl::rpc
