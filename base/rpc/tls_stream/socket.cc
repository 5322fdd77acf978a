#include "base/rpc/tls_stream/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "base/sync/mutex.h"
#include "base/time/clock.h"

namespace atl::rpc {
namespace {

constexpr int kBacklog = 256;
// A resolver may know any number of addresses.
constexpr size_t kAddressCountMax = 16;
// How often a wait for a resolver, which nothing interrupts, looks for a stop.
constexpr absl::Duration kLookInterval = absl::Milliseconds(50);

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

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
  const auto resolving = std::make_shared<Resolving>();
  std::thread([resolving, address] {
    Addresses list;
    const int error = LookUp(address, AI_ADDRCONFIG, list);
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
    return absl::UnavailableError(
        absl::StrCat("no name server answers for \"", address.host,
                     "\": is there a network?"));
  }
  if (resolving->error != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot find the host \"", address.host,
                     "\": ", gai_strerror(resolving->error)));
  }
  return std::move(resolving->found);
}

void SendAtOnce(int fd) {
  const int on = 1;
  // A socket works without it.
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

absl::StatusOr<UniqueFd> Connect(const addrinfo& address,
                                 const WaitLimits& limits) {
  UniqueFd fd(
      socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return ErrnoToStatus(errno, "socket");
  SendAtOnce(fd.get());
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

absl::Status CannotListen(const HostPort& address, int error) {
  return absl::FailedPreconditionError(absl::StrCat(
      ErrnoToStatus(error, absl::StrCat("cannot listen on ", Text(address)))
          .message(),
      "; `ss -ltnp` shows which program has a port"));
}

}  // namespace

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

absl::StatusOr<UniqueFd> Listen(const HostPort& address) {
  Addresses found;
  if (const int error = LookUp(address, AI_PASSIVE, found); error != 0) {
    return absl::NotFoundError(absl::StrCat(
        "cannot find the host \"", address.host, "\": ", gai_strerror(error)));
  }
  UniqueFd fd(
      socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return CannotListen(address, errno);
  const int on = 1;
  const int off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // [::] listens on IPv4 too.
  setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      listen(fd.get(), kBacklog) != 0) {
    return CannotListen(address, errno);
  }
  return fd;
}

absl::StatusOr<HostPort> LocalAddress(int fd) {
  sockaddr_storage storage = {};
  auto* const address = reinterpret_cast<sockaddr*>(&storage);
  socklen_t size = sizeof(storage);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  HostPort local;
  if (getsockname(fd, address, &size) != 0) {
    return ErrnoToStatus(errno, "getsockname");
  }
  if (getnameinfo(address, size, host, sizeof(host), port, sizeof(port),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0 ||
      !absl::SimpleAtoi(port, &local.port)) {
    return absl::InternalError("a socket without an address");
  }
  local.host = host;
  return local;
}

void BoundUnsentBytes(int fd) {
  const int bytes_max = 128 << 10;
  // A socket works without it.
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &bytes_max,
                   sizeof(bytes_max));
}

absl::StatusOr<std::vector<std::string>> FindAddresses(
    const HostPort& address, const WaitLimits& limits) {
  ASSIGN_OR_RETURN(const Addresses found, Resolve(address, limits));
  std::vector<std::string> texts;
  for (const addrinfo* at = found.get();
       at != nullptr && texts.size() < kAddressCountMax; at = at->ai_next) {
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
  std::vector<const addrinfo*> all;
  for (const addrinfo* at = found.get();
       at != nullptr && all.size() < kAddressCountMax; at = at->ai_next) {
    all.push_back(at);
  }
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

}  // namespace atl::rpc
