// The port of a gate. Anyone reaches it, so nothing that a peer does may cost
// much:
//
//   a peer                     is bounded by
//   opens many connections     256 in all, half of them for peers without a
//                              certificate (base/net/bounded_listener.h)
//   is idle, sends or reads    1 s to the first byte, 5 s from accept to close
//   slowly, or floods
//   sends much                 one request a connection, of 16 KiB; a holder of
//                              a token or certificate 64 MiB to measure the
//                              link, one at a time an address, two in all
//
// A connection that has sent something has a thread of 1 MiB of stack, of which
// less than 100 KiB is used, and the memory of a TlsStream. So all together take
// at most about 100 MiB, and usually a tenth of that.
//
// Thread-safe.

#pragma once

#include <pthread.h>

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/host_port/host_port.h"
#include "base/host_port/network.h"
#include "base/io/unique_fd.h"
#include "base/metrics/metrics.h"
#include "base/net/bounded_listener.h"
#include "base/net/places.h"
#include "base/sync/mutex.h"
#include "coordinator/gate/gate.h"
#include "coordinator/gate/gate_files.h"
#include "prometheus/collectable.h"

namespace atl::coordinator {

class GateListener {
 public:
  struct Spec {
    HostPort address;      // Port 0 takes a free one.
    Gate* gate = nullptr;  // These three must outlive the listener.
    GateFiles* files = nullptr;
    Metrics* metrics = nullptr;
    absl::Duration connection_max = absl::Seconds(5);
    // A name is of a certificate.
    net::Places::Limits limits = {.count_max = 256,
                                  .stranger_max = 128,
                                  .network_stranger_max = 64,
                                  .address_stranger_max = 32,
                                  .name_max = 16};
    std::vector<Network> trusted_proxies;
  };

  // Listens and serves. Errors as net::BoundedListener::Listen.
  static absl::StatusOr<std::unique_ptr<GateListener>> Start(const Spec& spec);
  // Ends all connections. Waits for those that the coordinator is asked for.
  ~GateListener();
  GateListener(const GateListener&) = delete;
  GateListener& operator=(const GateListener&) = delete;

  const HostPort& address() const { return listener_->address(); }

  // Closes the port, and gives open connections `grace` to end.
  void Drain(absl::Duration grace);

 private:
  struct Connection {
    GateListener* gate;
    UniqueFd fd;
    net::BoundedListener::Id id;
    std::string limit_key;
    std::list<pthread_t>::iterator thread;
  };

  explicit GateListener(const Spec& spec) : spec_(spec) {}
  // Starts a thread for the connection. False: it cannot be started.
  bool StartThread(std::unique_ptr<Connection> connection);
  static void* ServeInThread(void* connection);
  void Serve(Connection& connection);
  void JoinEnded();

  const Spec spec_;
  UniqueFd stop_serving_;  // A waker.
  std::shared_ptr<net::BoundedListener> listener_;
  std::shared_ptr<prometheus::Collectable> connection_metrics_;

  Mutex mutex_;
  CondVar changed_;
  std::list<pthread_t> running_ ABSL_GUARDED_BY(mutex_);
  std::list<pthread_t> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::coordinator
