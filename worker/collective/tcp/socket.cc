#include "worker/collective/tcp/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

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

std::string Text(const Endpoint& endpoint) {
  return absl::StrCat(endpoint.host, ":", endpoint.port);
}

absl::StatusOr<Addresses> Resolve(const Endpoint& endpoint, bool passive) {
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
  // A socket without one of them still works.
  (void)setsockopt(fd, level, option, &value, sizeof(value));
}

absl::StatusOr<Endpoint> EndpointOf(const sockaddr_storage& address,
                                    socklen_t length) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host,
                  sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return absl::UnavailableError("a socket without an address");
  }
  Endpoint endpoint;
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

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

UniqueFd::~UniqueFd() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<Endpoint> ParseEndpoint(absl::string_view text) {
  const size_t colon = text.rfind(':');
  Endpoint endpoint;
  if (colon == absl::string_view::npos ||
      !absl::SimpleAtoi(text.substr(colon + 1), &endpoint.port) ||
      endpoint.port < 0 || endpoint.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" is not HOST:PORT"));
  }
  absl::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", text, "\" names no host"));
  }
  endpoint.host = std::string(host);
  return endpoint;
}

absl::StatusOr<UniqueFd> Listen(const Endpoint& endpoint) {
  ASSIGN_OR_RETURN(const Addresses addresses, Resolve(endpoint, true));
  absl::Status last = absl::UnavailableError("no address");
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    UniqueFd fd(
        socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.valid()) {
      last = ErrnoToStatus(errno, "socket");
      continue;
    }
    SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(fd.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        listen(fd.get(), kBacklog) == 0) {
      return fd;
    }
    last = absl::UnavailableError(
        ErrnoToStatus(errno, absl::StrCat("listening at ", Text(endpoint)))
            .message());
  }
  return last;
}

absl::StatusOr<UniqueFd> Dial(const Endpoint& endpoint, absl::Time deadline) {
  ASSIGN_OR_RETURN(const Addresses addresses, Resolve(endpoint, false));
  absl::Status last = absl::UnavailableError("no address");
  for (const addrinfo* at = addresses.get(); at != nullptr; at = at->ai_next) {
    UniqueFd fd(
        socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!fd.valid()) {
      last = ErrnoToStatus(errno, "socket");
      continue;
    }
    last = ConnectTo(fd.get(), *at, deadline);
    if (!last.ok()) continue;
    Tune(fd.get());
    return fd;
  }
  return absl::UnavailableError(
      absl::StrCat("dialling ", Text(endpoint), ": ", last.message()));
}

void Tune(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepAliveIdleSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepAliveIntervalSeconds);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepAliveCount);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

absl::StatusOr<Endpoint> LocalEndpoint(int fd) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return ErrnoToStatus(errno, "getsockname");
  }
  return EndpointOf(address, length);
}

absl::StatusOr<Endpoint> PeerEndpoint(int fd) {
  sockaddr_storage address = {};
  socklen_t length = sizeof(address);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return ErrnoToStatus(errno, "getpeername");
  }
  return EndpointOf(address, length);
}

bool WaitFor(int fd, short events, absl::Time deadline) {
  for (;;) {
    const int64_t left_ms = std::clamp<int64_t>(
        absl::ToInt64Milliseconds(deadline - absl::Now()), 0, 60'000);
    pollfd entry = {fd, events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(left_ms) + 1);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (absl::Now() >= deadline) return false;
  }
}

absl::Status SendAll(int fd, absl::string_view bytes, absl::Time deadline) {
  while (!bytes.empty()) {
    const ssize_t sent =
        send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(sent);
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!WaitFor(fd, POLLOUT, deadline)) {
        return absl::UnavailableError("send: too late");
      }
    } else {
      return absl::UnavailableError(ErrnoToStatus(errno, "send").message());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<UniqueFd> MakeWaker() {
  UniqueFd fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd.valid()) return ErrnoToStatus(errno, "eventfd");
  return fd;
}

void SetWaker(int fd) {
  const uint64_t one = 1;
  (void)!write(fd, &one, sizeof(one));  // Full means that it is set.
}

void ClearWaker(int fd) {
  uint64_t count;
  (void)!read(fd, &count, sizeof(count));
}

}  // namespace atl::collective
