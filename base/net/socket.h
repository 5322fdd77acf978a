// Sockets whose every wait has a deadline and can be stopped: listening,
// dialling, waiting. All are non-blocking.
//
// Thread-safe.

#pragma once

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/host_port/host_port.h"
#include "base/io/unique_fd.h"

namespace atl::net {

// How long an operation may wait.
struct WaitLimits {
  absl::Time deadline;  // A time of SystemClock().
  // A waker (base/io/unique_fd.h) that stops the wait once it is set. -1: none.
  int stop_fd = -1;
};

// Waits until `fd` has one of poll's `events`, or an error to be read.
// DEADLINE_EXCEEDED: the deadline is over, whatever `fd` has.
// CANCELLED: stopped.
absl::Status WaitForSocket(int fd, short events, const WaitLimits& limits);

// True for the errno of a send or receive that can move no byte now.
bool WouldBlock(int error);

// Listens at the first of the host's addresses that this machine has; port 0
// takes a free one. `backlog` connections may wait to be accepted.
// NOT_FOUND: the host has no address. FAILED_PRECONDITION: the address is taken
// or not of this machine; the message says how to find out.
absl::StatusOr<UniqueFd> Listen(const HostPort& address, int backlog = 256);

// Listens at all of the host's addresses that this machine has, with one port:
// "localhost" may be 127.0.0.1 and ::1. At least one. Errors as Listen.
absl::StatusOr<std::vector<UniqueFd>> ListenAll(const HostPort& address,
                                                int backlog = 256);

// Accepts a connection that waits. `peer`, if not null, gets its address.
// RESOURCE_EXHAUSTED: too few descriptors or too little memory; the connection
// still waits. UNAVAILABLE: none waits.
absl::StatusOr<UniqueFd> Accept(int listening,
                                sockaddr_storage* peer = nullptr);

// The address that a socket is bound to, and the one that it is connected to.
absl::StatusOr<HostPort> LocalAddress(int fd);
absl::StatusOr<HostPort> PeerAddress(int fd);

// Keeps few bytes in the machine that are not on their way yet, so that what is
// written last arrives soon.
void BoundUnsentBytes(int fd);

// The numeric addresses of a host, in the order in which Dial tries them.
// NOT_FOUND: there are none. UNAVAILABLE: no name server answers.
// DEADLINE_EXCEEDED, CANCELLED: as WaitForSocket.
absl::StatusOr<std::vector<std::string>> FindAddresses(
    const HostPort& address, const WaitLimits& limits);

// Connects to the first address of the host that answers. Each
// address has an equal share of the time that is left.
// NOT_FOUND: the host has no address.
// UNAVAILABLE: no address answers; the message is of the last one.
// DEADLINE_EXCEEDED, CANCELLED: as WaitForSocket.
absl::StatusOr<UniqueFd> Dial(const HostPort& address,
                              const WaitLimits& limits);

}  // namespace atl::net
