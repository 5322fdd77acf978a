#include "worker/collective/tcp/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"

namespace atl::collective {
namespace {

constexpr int kBacklog = 1024;
constexpr int kKeepAliveIdleSeconds = 5;
constexpr int kKeepAliveIntervalSeconds = 2;
constexpr int kKeepAliveCount = 3;
constexpr int kUserTimeoutMs = 12'000;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

std::string Text(const HostPort& endpoint) {
  return JoinHostPort(endpoint.host, endpoint.port);
}

absl::StatusOr<Addresses> Resolve(const HostPort& endpoint, bool passive) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (passive ? AI_PASSIVE : 0);
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(endpoint.host.empty() ? nullptr : endpoint.host.c_str(),
                  absl::StrCat(endpoint.port).c_str(), &hints, &list);
  if (error != 0) {
    return absl::NotFoundError(absl::StrCat("cannot find ", Text(endpoint),
                                            ": ", gai_strerror(error)));
  }
  return Addresses(list);
}

void SetOption(int fd, int level, int option, int value) {
  // A socket works without these options.
  (void)setsockopt(fd, level, option, &value, sizeof(value));
}

// One address of socket `fd`; `get` is getsockname or getpeername.
absl::StatusOr<HostPort> ReadEndpoint(int fd,
                                      int (*get)(int, sockaddr*, socklen_t*),
                                      absl::string_view what) {
  sockaddr_storage storage = {};
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  socklen_t length = sizeof(storage);
  if (get(fd, address, &length) != 0) return atl::ErrnoToStatus(errno, what);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(address, length, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return absl::UnavailableError("a socket without an address");
  }
  HostPort endpoint;
  endpoint.host = host;
  if (!absl::SimpleAtoi(port, &endpoint.port)) endpoint.port = 0;
  return endpoint;
}

absl::Status ConnectTo(int fd, const addrinfo& address, absl::Time deadline) {
  if (connect(fd, address.ai_addr, address.ai_addrlen) == 0) {
    return absl::OkStatus();
  }
  if (errno != EINPROGRESS) return ErrnoToStatus(errno, "connect");
  if (!WaitFor(fd, POLLOUT, deadline)) {
    return absl::UnavailableError("connect: no answer in time");
  }
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0 ||
      error != 0) {
    return ErrnoToStatus(error != 0 ? error : errno, "connect");
  }
  return absl::OkStatus();
}

// UNAVAILABLE: `open` fails for all addresses; the message is the last one's.
absl::StatusOr<UniqueFd> OpenFirst(
    const HostPort& endpoint, bool passive,
    absl::FunctionRef<absl::Status(int, const addrinfo&)> open) {
  ASSIGN_OR_RETURN(const Addresses addresses, Resolve(endpoint, passive));
  absl::Status last = absl::UnavailableError("no address");
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    UniqueFd fd(
        socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    last = fd.valid() ? open(fd.get(), *at) : ErrnoToStatus(errno, "socket");
    if (last.ok()) return fd;
  }
  return absl::UnavailableError(
      absl::StrCat(passive ? "listening at " : "dialling ", Text(endpoint),
                   ": ", last.message()));
}

}  // namespace

absl::StatusOr<UniqueFd> Listen(const HostPort& endpoint) {
  return OpenFirst(endpoint, true, [&](int fd, const addrinfo& at) {
    SetOption(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(fd, at.ai_addr, at.ai_addrlen) == 0 && listen(fd, kBacklog) == 0) {
      return absl::OkStatus();
    }
    return ErrnoToStatus(errno, "listen");
  });
}

absl::StatusOr<UniqueFd> Dial(const HostPort& endpoint, absl::Time deadline) {
  ASSIGN_OR_RETURN(
      UniqueFd fd,
      OpenFirst(endpoint, false, [&](int fd, const addrinfo& address) {
        return ConnectTo(fd, address, deadline);
      }));
  Tune(fd.get());
  return fd;
}

void Tune(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveCount);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

absl::StatusOr<HostPort> LocalEndpoint(int fd) {
  return ReadEndpoint(fd, getsockname, "getsockname");
}

absl::StatusOr<HostPort> PeerEndpoint(int fd) {
  return ReadEndpoint(fd, getpeername, "getpeername");
}

bool WaitFor(int fd, short events, absl::Time deadline) {
  for (;;) {
    const int64_t left_ms = std::clamp<int64_t>(
        absl::ToInt64Milliseconds(deadline - SystemClock().Now()), 0, 60'000);
    pollfd entry = {fd, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(left_ms) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (SystemClock().Now() >= deadline) return false;
  }
}

}  // namespace atl::collective
