// A port whose connections are bounded: it accepts, and hands descriptors to
// whoever speaks the protocol.
//
//   a peer                     is bounded by
//   opens a connection and     `first_bytes_max` from accept to its first byte;
//   sends nothing              until then it costs a descriptor, nothing else
//   holds a connection         `age_max`, whatever it sends or reads meanwhile
//   opens many                 Places (base/net/places.h)
//   takes all descriptors      a spare one: a connection is accepted and closed
//                              instead of being left in the queue
//   opens the next while its   SetPaused: connections stay in the kernel's queue
//   last one is not done with
//   sends more than is wanted  Hold: what it sends stays in the kernel's buffer
//
// Loopback and trusted proxies, behind which many peers have one address, are
// exempt from the bounds of an address.
//
// The listener keeps a duplicate of each descriptor: so it can shut a
// connection whose owner it does not know, and sees its end, also where the
// owner reports none. An owner that closes a descriptor must call shutdown(2)
// before, or End.
//
// Thread-safe.

#pragma once

#include <sys/socket.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/host_port/host_port.h"
#include "base/host_port/network.h"
#include "base/io/unique_fd.h"
#include "base/net/places.h"
#include "base/obs/log_pace.h"
#include "base/sync/mutex.h"

namespace atl::net {

class BoundedListener {
 public:
  using Id = Places::Id;

  struct Connection {
    Id id = 0;
    sockaddr_storage address = {};
    // Equal for connections that limits count together: those of one address,
    // or /64 of IPv6, that is not exempt.
    std::string limit_key;
  };

  struct Spec {
    HostPort address;  // Port 0 takes a free one.
    // Lowered to a quarter of the descriptors that the process may open.
    Places::Limits limits;
    absl::Duration first_bytes_max = absl::Seconds(1);
    absl::Duration age_max = absl::InfiniteDuration();  // From the accept.
    std::vector<Network> trusted_proxies;
  };

  // Receives connections that have sent something, non-blocking. Called by the
  // listener's thread, which it must not hold up.
  using Serve = std::function<void(UniqueFd, const Connection&)>;

  // Takes the port. Connections wait until Run.
  // RESOURCE_EXHAUSTED: no descriptor is left. Others as net::Listen.
  static absl::StatusOr<std::unique_ptr<BoundedListener>> Listen(
      const Spec& spec);
  // As Stop; the connections that were handed over stay open.
  ~BoundedListener();
  BoundedListener(const BoundedListener&) = delete;
  BoundedListener& operator=(const BoundedListener&) = delete;

  const HostPort& address() const { return address_; }

  // Begins to accept. At most once.
  void Run(Serve serve);
  // Closes the port, and connections that were not handed over. Idempotent.
  void Stop();

  // While paused, the listener accepts no connection and hands none over. It
  // still sees the ends of others, and closes silent ones in time.
  void SetPaused(bool paused);

  // The peer of a connection has shown that it is `name`. Nothing if the
  // connection is not here any longer.
  void Prove(Id id, const std::string& name);
  // The same, of the connection whose peer has the address `peer`, as
  // ToPeerText names it.
  void Prove(absl::string_view peer, const std::string& name);
  // Keeps bytes that the peer sends from the connection's owner for `time`, or
  // until Stop, unless they become many. The owner must wait for them by poll or
  // epoll. Nothing if the connection is held already, or kHeldMax others are.
  void Hold(absl::string_view peer, absl::Duration time);
  // Shuts all connections of `name`, which is not empty. Bytes that their owners
  // have not read yet are lost.
  void Shut(const std::string& name);
  // The same, of those that have proven nothing and sent at least `bytes_min`.
  void ShutStrangers(uint64_t bytes_min);
  // Shuts a connection; its owner then closes it. Nothing if it is not here.
  void Shut(Id id);
  // The connection's owner has closed it, or is about to.
  void End(Id id);

  // True while the connection has its place.
  bool Has(Id id) const;
  // Connections that have places; and those that lost theirs, or never got one.
  int count() const;
  int64_t shut_count() const;

 private:
  struct Place {
    UniqueFd fd;        // The only one until it is handed over; then a copy.
    Connection connection;
    std::string peer;   // ToPeerText.
    std::string name;   // Proven; empty: a stranger.
    bool waits = true;  // For its first byte.
    bool is_held = false;
  };

  // So their bytes in the kernel are at most some 64 MiB.
  static constexpr size_t kHeldMax = 1024;

  // Connections in the order of their accepts, with the time when each is due.
  using Due = std::deque<std::pair<absl::Time, Id>>;

  explicit BoundedListener(const Spec& spec);

  void Loop();
  void TakeIn();
  void AcceptAll(int listening);
  void Accept(UniqueFd fd, const sockaddr_storage& address);
  void HandOver(Id id);
  // Closes those that have sent nothing in time, and those that are too old.
  // Returns when the next is due.
  absl::Time CloseDue(absl::Time now);
  // The owners of connections that were held until `now` read again. Returns
  // when the next hold ends.
  absl::Time EndHolds(absl::Time now);
  template <typename Chooses>
  void ShutAll(Chooses chooses);
  bool IsSilent(Id id) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Shuts it; the loop then sees its end.
  void ShutPlace(Id id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Forget(Id id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Spec spec_;
  HostPort address_;
  std::vector<UniqueFd> listening_;
  UniqueFd epoll_;
  // Epoll of the listening sockets and of silent connections; epoll_ watches it
  // unless the listener is paused.
  UniqueFd intake_;
  UniqueFd waker_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<bool> is_paused_ = false;  // Set under mutex_.
  UniqueFd spare_;  // The loop's, as log_pace_.
  LogPace log_pace_;
  Serve serve_;
  std::thread thread_;

  mutable Mutex mutex_;
  Places places_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<Id, Place> open_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Id> peers_ ABSL_GUARDED_BY(mutex_);
  Due silent_ ABSL_GUARDED_BY(mutex_);  // Some may be gone, or not silent.
  Due aged_ ABSL_GUARDED_BY(mutex_);    // Some may be gone.
  // By the end of the hold. Some may be gone.
  std::multimap<absl::Time, Id> held_ ABSL_GUARDED_BY(mutex_);
  int64_t shut_count_ ABSL_GUARDED_BY(mutex_) = 0;
};

// Whether the bounds of an address do not count connections from
// `address_bytes`, as of ToAddressBytes. Pure.
bool IsExempt(absl::string_view address_bytes,
              const std::vector<Network>& trusted_proxies);

// gRPC's name of a peer's address: "ipv4:192.0.2.1:80", "ipv6:%5B::1%5D:80".
std::string ToPeerText(const sockaddr& address);

}  // namespace atl::net
