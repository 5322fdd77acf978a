// The port of a gate. Anyone reaches it, so nothing that a peer does may cost
// much:
//
//   a peer                     is bounded by
//   opens many connections     256 in all, 32 an address (a /64 of IPv6):
//                              further ones are closed at once
//   is idle, sends or reads    5 s from accept to close
//   slowly, or floods
//   sends much                 one request a connection, of 16 KiB; a holder of
//                              a token or certificate 64 MiB to measure the
//                              link, one at a time an address, two in all
//
// A connection has a thread of 1 MiB of stack, of which less than 100 KiB is
// used, and the memory of a TlsStream. So all together take at most about 100
// MiB, and usually a tenth of that.
//
// Thread-safe.

#pragma once

#include <pthread.h>

#include <list>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/host_port/host_port.h"
#include "base/io/unique_fd.h"
#include "base/metrics/metrics.h"
#include "base/sync/mutex.h"
#include "coordinator/gate/gate.h"
#include "coordinator/gate/gate_files.h"
#include "coordinator/gate/gate_limits.h"
#include "prometheus/counter.h"
#include "prometheus/gauge.h"

namespace atl::coordinator {

class GateListener {
 public:
  struct Spec {
    HostPort address;      // Port 0 takes a free one.
    Gate* gate = nullptr;  // These three must outlive the listener.
    GateFiles* files = nullptr;
    Metrics* metrics = nullptr;
    absl::Duration connection_max = absl::Seconds(5);
    int connection_count_max = 256;
    int address_connection_count_max = 32;
  };

  // Listens and serves. Errors as net::Listen.
  static absl::StatusOr<std::unique_ptr<GateListener>> Start(const Spec& spec);
  // Ends all connections. Waits for those that the coordinator is asked for.
  ~GateListener();
  GateListener(const GateListener&) = delete;
  GateListener& operator=(const GateListener&) = delete;

  const HostPort& address() const { return address_; }

  // Closes the port, and gives open connections `grace` to end.
  void Drain(absl::Duration grace);

 private:
  // An accepted connection.
  struct Connection {
    GateListener* listener;
    UniqueFd fd;
    std::string key;  // ToLimitKey.
    std::list<pthread_t>::iterator thread;
  };

  explicit GateListener(const Spec& spec);
  void Run();
  void Accept();
  // Starts a thread for the connection. False: there is none to be had.
  bool StartThread(UniqueFd fd, const std::string& key);
  static void* ServeInThread(void* connection);
  void Serve(Connection& connection);
  void JoinEnded();

  const Spec spec_;
  prometheus::Gauge& connections_;
  prometheus::Counter& refused_;
  HostPort address_;
  UniqueFd listening_;
  UniqueFd stop_accepting_;  // Wakers.
  UniqueFd stop_serving_;
  std::thread thread_;

  Mutex mutex_;
  CondVar changed_;
  ConnectionLimit limit_ ABSL_GUARDED_BY(mutex_);
  std::list<pthread_t> running_ ABSL_GUARDED_BY(mutex_);
  std::list<pthread_t> ended_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::coordinator
