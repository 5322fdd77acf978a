#include "base/net/bounded_listener.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/tcp.h>  // glibc's tcp_info lacks the bytes.
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "base/net/socket.h"
#include "base/obs/log.h"
#include "base/status/status_macros.h"
#include "base/time/clock.h"

namespace atl::net {
namespace {

// Tags of the epoll that are no connection's id, which are positive.
constexpr uint64_t kWakeTag = 0;
constexpr uint64_t kIntakeTag = uint64_t{1} << 61;
constexpr uint64_t kListeningTag = uint64_t{1} << 62;
constexpr int kEventsMax = 64;
// Accepts in a row, so that connections that have something are handed over
// meanwhile.
constexpr int kAcceptsInARow = 64;
constexpr absl::Duration kIdleWait = absl::Hours(1);
// The pause after a failed accept that no spare descriptor mends.
constexpr absl::Duration kAcceptPause = absl::Milliseconds(100);
// The owner of a held connection may read once so many bytes wait: some
// hundreds of calls.
constexpr int kHeldBytes = 64 << 10;

const sockaddr& Generic(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr&>(address);
}

UniqueFd OpenSpare() { return UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

bool IsLoopback(absl::string_view address_bytes) {
  constexpr absl::string_view kIpv6("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);
  return address_bytes == kIpv6 ||
         (address_bytes.size() == 4 && address_bytes[0] == 127);
}

bool Watch(const UniqueFd& epoll, int fd, uint32_t events, uint64_t tag,
           int operation = EPOLL_CTL_ADD) {
  epoll_event event = {};
  event.events = events;
  event.data.u64 = tag;
  return epoll_ctl(epoll.get(), operation, fd, &event) == 0;
}

// Bytes that the peer has sent; the most if the kernel does not tell.
uint64_t BytesReceived(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  constexpr size_t kEnd =
      offsetof(tcp_info, tcpi_bytes_received) + sizeof(uint64_t);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < kEnd) {
    return std::numeric_limits<uint64_t>::max();
  }
  return info.tcpi_bytes_received;
}

// A poll tells of bytes once so many wait.
void SetBytesMin(const UniqueFd& fd, int bytes) {
  (void)setsockopt(fd.get(), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

// As many connections as descriptors allow: each takes two.
Places::Limits Lower(Places::Limits limits) {
  rlimit descriptors = {};
  getrlimit(RLIMIT_NOFILE, &descriptors);
  const rlim_t quarter = descriptors.rlim_cur / 4;
  if (quarter < static_cast<rlim_t>(limits.count_max)) {
    limits.count_max = std::max(2, static_cast<int>(quarter));
  }
  limits.stranger_max = std::min(limits.stranger_max, limits.count_max / 2);
  return limits;
}

}  // namespace

bool IsExempt(absl::string_view address_bytes,
              const std::vector<Network>& trusted_proxies) {
  return IsLoopback(address_bytes) ||
         std::any_of(trusted_proxies.begin(), trusted_proxies.end(),
                     [&](const Network& network) {
                       return network.Contains(address_bytes);
                     });
}

std::string ToPeerText(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN];
  if (address.sa_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(v4.sin_port));
  }
  if (address.sa_family != AF_INET6) return "";
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], text, sizeof(text));
    return absl::StrCat("ipv4:", text, ":", ntohs(v6.sin6_port));
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof(text));
  const std::string scope =
      v6.sin6_scope_id == 0 ? "" : absl::StrCat("%25", v6.sin6_scope_id);
  return absl::StrCat("ipv6:%5B", text, scope, "%5D:", ntohs(v6.sin6_port));
}

BoundedListener::BoundedListener(const Spec& spec)
    : spec_(spec), places_(Lower(spec.limits)) {}

absl::StatusOr<std::unique_ptr<BoundedListener>> BoundedListener::Listen(
    const Spec& spec) {
  auto made = std::unique_ptr<BoundedListener>(new BoundedListener(spec));
  ASSIGN_OR_RETURN(made->listening_, ListenAll(spec.address));
  ASSIGN_OR_RETURN(made->address_, LocalAddress(made->listening_[0].get()));
  made->address_.host = spec.address.host;
  ASSIGN_OR_RETURN(made->waker_, MakeWaker());
  made->epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  made->intake_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  made->spare_ = OpenSpare();
  bool watched =
      made->epoll_.valid() && made->intake_.valid() && made->spare_.valid() &&
      Watch(made->epoll_, made->waker_.get(), EPOLLIN, kWakeTag) &&
      Watch(made->epoll_, made->intake_.get(), EPOLLIN, kIntakeTag);
  for (size_t i = 0; i < made->listening_.size(); ++i) {
    watched = watched && Watch(made->intake_, made->listening_[i].get(),
                               EPOLLIN, kListeningTag + i);
  }
  if (!watched) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "too few descriptors to listen on ",
        JoinHostPort(spec.address.host, spec.address.port),
        ": `ulimit -n` is the limit"));
  }
  return made;
}

BoundedListener::~BoundedListener() { Stop(); }

void BoundedListener::Run(Serve serve) {
  serve_ = std::move(serve);
  thread_ = std::thread([this] { Loop(); });
}

void BoundedListener::Stop() {
  is_stopping_ = true;
  SetWaker(waker_.get());
  if (thread_.joinable()) thread_.join();
  EndHolds(absl::InfiniteFuture());
  listening_.clear();
  MutexLock lock(&mutex_);
  for (const auto& [until, id] : silent_) {
    if (IsSilent(id)) Forget(id);
  }
  silent_.clear();
  aged_.clear();
}

void BoundedListener::SetPaused(bool paused) {
  MutexLock lock(&mutex_);
  is_paused_ = paused;
  Watch(epoll_, intake_.get(), paused ? 0 : uint32_t{EPOLLIN}, kIntakeTag,
        EPOLL_CTL_MOD);
}

void BoundedListener::Prove(Id id, const std::string& name) {
  MutexLock lock(&mutex_);
  const auto found = open_.find(id);
  if (found == open_.end() || found->second.name == name) return;
  found->second.name = name;
  const std::optional<Id> ended = places_.Prove(id, name);
  if (ended.has_value()) ShutPlace(*ended);
}

void BoundedListener::Prove(absl::string_view peer, const std::string& name) {
  Id id = 0;
  {
    MutexLock lock(&mutex_);
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return;
    id = found->second;
  }
  Prove(id, name);
}

void BoundedListener::Hold(absl::string_view peer, absl::Duration time) {
  const absl::Time end = SystemClock().Now() + time;
  {
    MutexLock lock(&mutex_);
    const auto found = peers_.find(peer);
    if (found == peers_.end() || is_stopping_ || held_.size() >= kHeldMax) {
      return;
    }
    Place& place = open_[found->second];
    if (std::exchange(place.is_held, true)) return;
    SetBytesMin(place.fd, kHeldBytes);
    held_.emplace(end, found->second);
    if (held_.begin()->first < end) return;
  }
  SetWaker(waker_.get());
}

void BoundedListener::Shut(const std::string& name) {
  ShutAll([&](const Place& place) { return place.name == name; });
}

void BoundedListener::ShutStrangers(uint64_t bytes_min) {
  ShutAll([bytes_min](const Place& place) {
    return place.name.empty() && BytesReceived(place.fd.get()) >= bytes_min;
  });
}

template <typename Chooses>
void BoundedListener::ShutAll(Chooses chooses) {
  MutexLock lock(&mutex_);
  std::vector<Id> ids;
  for (const auto& [id, place] : open_) {
    if (chooses(place)) ids.push_back(id);
  }
  for (const Id id : ids) ShutPlace(id);
}

void BoundedListener::Shut(Id id) {
  MutexLock lock(&mutex_);
  ShutPlace(id);
}

void BoundedListener::End(Id id) {
  MutexLock lock(&mutex_);
  Forget(id);
}

bool BoundedListener::Has(Id id) const {
  MutexLock lock(&mutex_);
  return open_.contains(id);
}

int BoundedListener::count() const {
  MutexLock lock(&mutex_);
  return static_cast<int>(open_.size());
}

int64_t BoundedListener::shut_count() const {
  MutexLock lock(&mutex_);
  return shut_count_;
}

void BoundedListener::Loop() {
  for (;;) {
    const absl::Time now = SystemClock().Now();
    const absl::Duration left = std::min(CloseDue(now), EndHolds(now)) - now;
    // Rounded up, so that the last wait is not a busy one.
    const int64_t wait_ms = absl::ToInt64Milliseconds(
        std::clamp(left, absl::ZeroDuration(), kIdleWait) +
        absl::Milliseconds(1));
    epoll_event events[kEventsMax];
    const int count = epoll_wait(epoll_.get(), events, kEventsMax,
                                 static_cast<int>(wait_ms));
    for (int i = 0; i < count; ++i) {
      const uint64_t tag = events[i].data.u64;
      if (tag == kWakeTag) {
        ClearWaker(waker_.get());
        if (is_stopping_) return;
      } else if (tag == kIntakeTag) {
        TakeIn();
      } else {
        End(static_cast<Id>(tag));
      }
    }
  }
}

void BoundedListener::TakeIn() {
  epoll_event events[kEventsMax];
  const int count = epoll_wait(intake_.get(), events, kEventsMax, 0);
  for (int i = 0; i < count && !is_paused_; ++i) {
    const uint64_t tag = events[i].data.u64;
    if (tag >= kListeningTag) {
      AcceptAll(listening_[tag - kListeningTag].get());
    } else if (events[i].events & (EPOLLHUP | EPOLLERR)) {
      End(static_cast<Id>(tag));
    } else {
      HandOver(static_cast<Id>(tag));
    }
  }
}

void BoundedListener::AcceptAll(int listening) {
  for (int i = 0; i < kAcceptsInARow; ++i) {
    sockaddr_storage address = {};
    absl::StatusOr<UniqueFd> fd = net::Accept(listening, &address);
    if (fd.ok()) {
      if (!spare_.valid()) spare_ = OpenSpare();
      Accept(*std::move(fd), address);
      continue;
    }
    if (!absl::IsResourceExhausted(fd.status())) return;
    if (log_pace_.IsDue(fd.status().message(), SystemClock().Now())) {
      LOG(WARNING) << "on " << JoinHostPort(address_.host, address_.port)
                   << ": " << fd.status().message();
    }
    if (!spare_.valid()) {
      (void)WaitForSocket(-1, 0,
                          {SystemClock().Now() + kAcceptPause, waker_.get()});
      return;
    }
    // Else the connection would stay in the queue, and wake the loop for ever.
    spare_ = UniqueFd();
    { const absl::StatusOr<UniqueFd> refused = net::Accept(listening); }
    spare_ = OpenSpare();
    MutexLock lock(&mutex_);
    ++shut_count_;
  }
}

void BoundedListener::Accept(UniqueFd fd, const sockaddr_storage& address) {
  const int on = 1;
  (void)setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const std::string bytes = ToAddressBytes(Generic(address));
  MutexLock lock(&mutex_);
  const Places::Added added =
      places_.Add(IsExempt(bytes, spec_.trusted_proxies) ? "" : bytes);
  if (added.ended.has_value()) ShutPlace(*added.ended);
  if (!Watch(intake_, fd.get(), EPOLLIN, static_cast<uint64_t>(added.id))) {
    places_.Remove(added.id);
    return;
  }
  Place& place = open_[added.id];
  place.fd = std::move(fd);
  place.connection = {added.id, address, added.key};
  place.peer = ToPeerText(Generic(address));
  peers_[place.peer] = added.id;
  const absl::Time now = SystemClock().Now();
  silent_.emplace_back(now + spec_.first_bytes_max, added.id);
  if (spec_.age_max != absl::InfiniteDuration()) {
    aged_.emplace_back(now + spec_.age_max, added.id);
  }
}

void BoundedListener::HandOver(Id id) {
  UniqueFd handed;
  Connection connection;
  {
    MutexLock lock(&mutex_);
    const auto found = open_.find(id);
    if (found == open_.end() || !found->second.waits) return;
    Place& place = found->second;
    UniqueFd copy(fcntl(place.fd.get(), F_DUPFD_CLOEXEC, 0));
    // Only the end of both directions is of interest from now on.
    if (!copy.valid() ||
        epoll_ctl(intake_.get(), EPOLL_CTL_DEL, place.fd.get(), nullptr) != 0 ||
        !Watch(epoll_, copy.get(), 0, static_cast<uint64_t>(id))) {
      ++shut_count_;
      Forget(id);
      return;
    }
    handed = std::exchange(place.fd, std::move(copy));
    place.waits = false;
    connection = place.connection;
  }
  serve_(std::move(handed), connection);
}

absl::Time BoundedListener::CloseDue(absl::Time now) {
  MutexLock lock(&mutex_);
  while (!silent_.empty()) {
    const auto [until, id] = silent_.front();
    const bool is_silent = IsSilent(id);
    if (is_silent && until > now) break;
    silent_.pop_front();
    if (is_silent) ShutPlace(id);
  }
  while (!aged_.empty()) {
    const auto [until, id] = aged_.front();
    if (until > now && open_.contains(id)) break;
    aged_.pop_front();
    ShutPlace(id);
  }
  return std::min(
      silent_.empty() ? absl::InfiniteFuture() : silent_.front().first,
      aged_.empty() ? absl::InfiniteFuture() : aged_.front().first);
}

absl::Time BoundedListener::EndHolds(absl::Time now) {
  MutexLock lock(&mutex_);
  while (!held_.empty() && held_.begin()->first <= now) {
    const auto found = open_.find(held_.begin()->second);
    held_.erase(held_.begin());
    if (found == open_.end()) continue;
    found->second.is_held = false;
    SetBytesMin(found->second.fd, 1);
  }
  return held_.empty() ? absl::InfiniteFuture() : held_.begin()->first;
}

bool BoundedListener::IsSilent(Id id) const {
  const auto found = open_.find(id);
  return found != open_.end() && found->second.waits;
}

void BoundedListener::ShutPlace(Id id) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  ++shut_count_;
  const int fd = found->second.fd.get();
  shutdown(fd, SHUT_RDWR);
  // The owner would still read all that waits in the socket. Further bytes of
  // the peer reset the connection.
  while (recv(fd, nullptr, size_t{1} << 20, MSG_TRUNC | MSG_DONTWAIT) > 0) {
  }
  Forget(id);
}

void BoundedListener::Forget(Id id) {
  const auto found = open_.find(id);
  if (found == open_.end()) return;
  const auto peer = peers_.find(found->second.peer);
  if (peer != peers_.end() && peer->second == id) peers_.erase(peer);
  const UniqueFd& epoll = found->second.waits ? intake_ : epoll_;
  epoll_ctl(epoll.get(), EPOLL_CTL_DEL, found->second.fd.get(), nullptr);
  open_.erase(found);
  places_.Remove(id);
}

}  // namespace atl::net
