#include "base/net/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"

namespace atl::net {
namespace {

// A resolver may know any number of addresses.
constexpr size_t kAddressCountMax = 16;
// How often a wait for a resolver, which nothing interrupts, looks for a stop.
constexpr absl::Duration kLookInterval = absl::Milliseconds(50);

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

std::vector<const addrinfo*> FirstOf(const addrinfo& list) {
  std::vector<const addrinfo*> first;
  for (const addrinfo* at = &list;
       at != nullptr && first.size() < kAddressCountMax; at = at->ai_next) {
    first.push_back(at);
  }
  return first;
}

std::string Text(const HostPort& address) {
  return JoinHostPort(address.host, address.port);
}

// Returns getaddrinfo's error, 0 if there is none.
int LookUp(const HostPort& address, int flags, Addresses& found) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(
      address.host.c_str(), absl::StrCat(address.port).c_str(), &hints, &list);
  if (error == 0) found.reset(list);
  return error;
}

// getaddrinfo has no deadline of its own. So it runs in a thread, which ends by
// itself if nobody waits for it any longer.
struct Resolving {
  Mutex mutex;
  CondVar changed;
  bool done ABSL_GUARDED_BY(mutex) = false;
  int error ABSL_GUARDED_BY(mutex) = 0;
  Addresses found ABSL_GUARDED_BY(mutex);
};

absl::Status CheckStopped(const WaitLimits& limits) {
  pollfd stop = {limits.stop_fd, POLLIN, 0};
  if (limits.stop_fd >= 0 && poll(&stop, 1, 0) > 0) {
    return absl::CancelledError("stopped");
  }
  return absl::OkStatus();
}

absl::StatusOr<Addresses> Resolve(const HostPort& address,
                                  const WaitLimits& limits) {
  Addresses found;
  // A number needs no resolver.
  if (LookUp(address, AI_NUMERICHOST, found) == 0) return found;
  // AI_ADDRCONFIG does not count ::1, where Listen may be if the host is
  // localhost.
  const int flags = IsLoopbackHost(address.host) ? 0 : AI_ADDRCONFIG;
  const auto resolving = std::make_shared<Resolving>();
  std::thread([resolving, address, flags] {
    Addresses list;
    const int error = LookUp(address, flags, list);
    MutexLock lock(&resolving->mutex);
    resolving->done = true;
    resolving->error = error;
    resolving->found = std::move(list);
    resolving->changed.SignalAll();
  }).detach();
  MutexLock lock(&resolving->mutex);
  while (!resolving->done) {
    RETURN_IF_ERROR(CheckStopped(limits));
    const absl::Duration left = limits.deadline - SystemClock().Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(absl::StrCat(
          "the name server has no answer for \"", address.host, "\" in time"));
    }
    resolving->changed.WaitWithTimeout(&resolving->mutex,
                                       std::min(left, kLookInterval));
  }
  if (resolving->error == EAI_AGAIN) {
    return absl::UnavailableError(absl::StrCat("no name server answers for \"",
                                               address.host,
                                               "\": is there a network?"));
  }
  if (resolving->error != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot find the host \"", address.host,
                     "\": ", gai_strerror(resolving->error)));
  }
  return std::move(resolving->found);
}

// For options without which a socket works, too.
void SetOption(int fd, int level, int option, int value) {
  (void)setsockopt(fd, level, option, &value, sizeof(value));
}

absl::StatusOr<UniqueFd> Connect(const addrinfo& address,
                                 const WaitLimits& limits) {
  UniqueFd fd(
      socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoToStatus(errno, "socket");
  SetOption(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);  // Sends at once.
  if (connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0) return fd;
  if (errno != EINPROGRESS) return ErrnoToStatus(errno, "connect");
  RETURN_IF_ERROR(WaitForSocket(fd.get(), POLLOUT, limits));
  int error = 0;
  socklen_t size = sizeof(error);
  if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
    error = errno;
  }
  if (error != 0) return ErrnoToStatus(error, "connect");
  return fd;
}

// `get` is getsockname or getpeername.
absl::StatusOr<HostPort> ReadAddress(int fd,
                                     int (*get)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage storage = {};
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  socklen_t size = sizeof(storage);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  HostPort found;
  if (get(fd, address, &size) != 0) {
    return ErrnoToStatus(errno, "the address of a socket");
  }
  if (getnameinfo(address, size, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0 ||
      !absl::SimpleAtoi(port, &found.port)) {
    return absl::InternalError("a socket without an address");
  }
  found.host = host;
  return found;
}

absl::StatusOr<Addresses> LookUpOwn(const HostPort& address) {
  Addresses found;
  if (const int error = LookUp(address, AI_PASSIVE, found); error != 0) {
    return absl::NotFoundError(absl::StrCat(
        "cannot find the host \"", address.host, "\": ", gai_strerror(error)));
  }
  return found;
}

void SetPort(sockaddr& address, int port) {
  if (address.sa_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(address).sin_port = htons(port);
  } else if (address.sa_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6&>(address).sin6_port = htons(port);
  }
}

// Listens at no more than `count_max` addresses of `list`, which belong to
// `address`; all have the port that the first has got.
absl::StatusOr<std::vector<UniqueFd>> ListenAt(const addrinfo& list,
                                               const HostPort& address,
                                               int backlog, size_t count_max) {
  std::vector<UniqueFd> all;
  std::set<std::string> seen;  // A hosts file may name an address twice.
  int error = 0;
  for (const addrinfo* at = &list; at != nullptr && all.size() < count_max;
       at = at->ai_next) {
    if (!seen.emplace(reinterpret_cast<const char*>(at->ai_addr),
                      at->ai_addrlen)
             .second) {
      continue;
    }
    if (!all.empty()) {
      ASSIGN_OR_RETURN(const HostPort first, LocalAddress(all[0].get()));
      SetPort(*at->ai_addr, first.port);
    }
    UniqueFd fd(
        socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (fd.valid()) {
      SetOption(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
      // [::] listens on IPv4 too.
      SetOption(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    }
    if (fd.valid() && bind(fd.get(), at->ai_addr, at->ai_addrlen) == 0 &&
        listen(fd.get(), backlog) == 0) {
      all.push_back(std::move(fd));
      continue;
    }
    error = errno;
    // Another program has the port: dialling the host would lead there.
    if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) break;
  }
  if (!all.empty() && (error == 0 || error == EADDRNOTAVAIL ||
                       error == EAFNOSUPPORT)) {
    return all;
  }
  return absl::FailedPreconditionError(absl::StrCat(
      ErrnoToStatus(error, absl::StrCat("cannot listen on ", Text(address)))
          .message(),
      error == EADDRINUSE
          ? ": the port is taken; `ss -ltnp` shows which program has it"
          : "; `ss -ltnp` shows which program has a port"));
}

}  // namespace

bool WouldBlock(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

absl::Status WaitForSocket(int fd, short events, const WaitLimits& limits) {
  pollfd waited[] = {{fd, events, 0}, {limits.stop_fd, POLLIN, 0}};
  for (;;) {
    const absl::Duration left = limits.deadline - SystemClock().Now();
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError("no answer in time");
    }
    // Rounded up, so that the last wait is not a busy one.
    const int64_t left_ms = absl::ToInt64Milliseconds(
        std::min(left, absl::Hours(1)) + absl::Milliseconds(1));
    const int count = poll(waited, 2, static_cast<int>(left_ms));
    if (count < 0 && errno != EINTR) return ErrnoToStatus(errno, "poll");
    if (count <= 0) continue;
    if (waited[1].revents != 0) return absl::CancelledError("stopped");
    return absl::OkStatus();
  }
}

absl::StatusOr<UniqueFd> Listen(const HostPort& address, int backlog) {
  ASSIGN_OR_RETURN(const Addresses found, LookUpOwn(address));
  ASSIGN_OR_RETURN(std::vector<UniqueFd> all,
                   ListenAt(*found, address, backlog, 1));
  return std::move(all[0]);
}

absl::StatusOr<std::vector<UniqueFd>> ListenAll(const HostPort& address,
                                                int backlog) {
  ASSIGN_OR_RETURN(const Addresses found, LookUpOwn(address));
  return ListenAt(*found, address, backlog, kAddressCountMax);
}

absl::StatusOr<UniqueFd> Accept(int listening, sockaddr_storage* peer) {
  socklen_t size = sizeof(*peer);
  UniqueFd fd(accept4(listening, reinterpret_cast<sockaddr*>(peer),
                      peer == nullptr ? nullptr : &size,
                      SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (fd.valid()) return fd;
  const int error = errno;
  const absl::Status status = ErrnoToStatus(error, "cannot accept");
  return error == EMFILE || error == ENFILE || error == ENOBUFS ||
                 error == ENOMEM
             ? absl::ResourceExhaustedError(status.message())
             : absl::UnavailableError(status.message());
}

absl::StatusOr<HostPort> LocalAddress(int fd) {
  return ReadAddress(fd, getsockname);
}

absl::StatusOr<HostPort> PeerAddress(int fd) {
  return ReadAddress(fd, getpeername);
}

void BoundUnsentBytes(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, 128 << 10);
}

absl::StatusOr<std::vector<std::string>> FindAddresses(
    const HostPort& address, const WaitLimits& limits) {
  ASSIGN_OR_RETURN(const Addresses found, Resolve(address, limits));
  std::vector<std::string> texts;
  for (const addrinfo* const at : FirstOf(*found)) {
    char host[NI_MAXHOST];
    if (getnameinfo(at->ai_addr, at->ai_addrlen, host, sizeof(host), nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      texts.emplace_back(host);
    }
  }
  return texts;
}

absl::StatusOr<UniqueFd> Dial(const HostPort& address,
                              const WaitLimits& limits) {
  ASSIGN_OR_RETURN(const Addresses found, Resolve(address, limits));
  const std::vector<const addrinfo*> all = FirstOf(*found);
  absl::Status last = absl::NotFoundError("the host has no address");
  for (size_t i = 0; i < all.size(); ++i) {
    const absl::Time now = SystemClock().Now();
    WaitLimits share = limits;
    share.deadline = now + (limits.deadline - now) / (all.size() - i);
    absl::StatusOr<UniqueFd> fd = Connect(*all[i], share);
    if (fd.ok() || absl::IsCancelled(fd.status())) return fd;
    last = fd.status();
  }
  return absl::IsDeadlineExceeded(last)
             ? last
             : absl::UnavailableError(last.message());
}

}  // namespace atl::net
