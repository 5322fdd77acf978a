// Sockets as values: owned descriptors, listening, dialling with a deadline.

#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/host_port/host_port.h"

namespace atl::collective {

// Closes its descriptor when destroyed.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept;
  ~UniqueFd();

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

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

// An eventfd that wakes a poll. UNAVAILABLE: no descriptor left.
absl::StatusOr<UniqueFd> MakeWaker();
void SetWaker(int fd);
void ClearWaker(int fd);

}  // namespace atl::collective
