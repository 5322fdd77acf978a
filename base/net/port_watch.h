// Tells whether a program's own ports answer, as its peers see them.
//
// A thread dials each port again and again and waits for the first bytes of its
// protocol: of TLS, or of HTTP/2. So a port that cannot accept, or whose threads
// are stuck, is noticed, while a check within the process would not notice it.

#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/host_port/host_port.h"
#include "base/io/unique_fd.h"
#include "base/net/socket.h"

namespace atl::net {

// Dials `address`, which may stand for every address of this machine, and waits
// for an answer.
// UNAVAILABLE, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED: it gives none.
// CANCELLED: as WaitForSocket.
absl::Status CheckPort(const HostPort& address, bool has_tls,
                       const WaitLimits& limits);

class PortWatch {
 public:
  struct Spec {
    std::vector<HostPort> addresses;
    bool has_tls = false;
    absl::Duration period = absl::Seconds(5);
    absl::Duration answer_max = absl::Seconds(10);
    // Called on the thread when it changes: OK, or the first port that does not
    // answer, with the error. OK at first.
    std::function<void(const absl::Status&)> on_change;
  };

  explicit PortWatch(Spec spec);
  ~PortWatch();
  PortWatch(const PortWatch&) = delete;
  PortWatch& operator=(const PortWatch&) = delete;

 private:
  absl::Status CheckAll() const;
  void Run();

  const Spec spec_;
  UniqueFd stop_;  // A waker. Invalid: there is no watch.
  std::thread thread_;
};

}  // namespace atl::net
