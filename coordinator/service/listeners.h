// The coordinator's ports.
//
// All services share the main address. A service may have an address of its
// own, so that an operator can use different firewalls. A separate port also
// serves RunService: islands, servers and readers call GetRun first.
// Permissions do not depend on the port: base/rpc/authorization.h.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/metrics/metrics.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/listener.h"
#include "base/sync/mutex.h"
#include "coordinator/service/data_url_signer.h"
#include "coordinator/service/event_loop.h"
#include "grpcpp/impl/service_type.h"

namespace atl::coordinator {

// Thread-safe.
class Listeners {
 public:
  // Addresses are host:port; port 0 takes a free one.
  struct Spec {
    // RunService and EnrolmentService; default of the others.
    std::string main = "127.0.0.1:0";
    std::string island;      // IslandService; empty: at main.
    std::string server;      // ServerService; empty: at main.
    std::string query;       // TrainingStateService; empty: at main.
    rpc::Security security;  // For every port.
    // Counts the calls of all ports; may be null. Must outlive the listeners.
    Metrics* metrics = nullptr;
    // Signs URLs of runs' data; null: signing is refused. Must outlive the
    // listeners.
    DataUrlSigner* data_url_signer = nullptr;
    std::string data_dir;  // The log's directory; empty: it has none.
    // As in rpc::ListenerOptions.
    absl::Duration connection_age_max = absl::Minutes(10);
  };

  struct Port {
    std::string name;     // "main", "island", "server" or "query".
    std::string address;  // host:port, with the port that was taken.
  };

  // OK if all ports may be opened (rpc::CheckListener).
  static absl::Status Check(const Spec& spec);

  // Opens all ports or none. `loop` must outlive the listeners. Errors: as
  // rpc::RpcServer::Start, with the port's name.
  static absl::StatusOr<std::unique_ptr<Listeners>> Start(EventLoop& loop,
                                                          const Spec& spec);
  ~Listeners();
  Listeners(const Listeners&) = delete;
  Listeners& operator=(const Listeners&) = delete;

  // The main port first.
  const std::vector<Port>& ports() const { return ports_; }

  // As in rpc::RpcServer, for every port.
  void SetServing(bool serving);
  void Stop();

 private:
  Listeners() = default;

  std::vector<Port> ports_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::vector<std::unique_ptr<rpc::RpcServer>> servers_;  // As ports_.
};

// Shows to callers and probes whether the coordinator serves: gRPC's health on
// every port, and /readyz of the metrics port. Both say the same, but for a port
// that does not answer (net::PortWatch), which /readyz alone can tell.
//
// It serves while its ports are open, it accepts changes, and it was not told to
// stop. Thread-safe.
class Health {
 public:
  // Not ready: recovers. `metrics` must outlive this.
  explicit Health(Metrics& metrics);
  Health(const Health&) = delete;
  Health& operator=(const Health&) = delete;

  // The ports are open. `listeners` must live until the next call with
  // another one; null: the ports are closed.
  void SetListeners(Listeners* listeners);
  // EventLoop::Spec::on_refusal.
  void SetRefusal(const absl::Status& refusal);
  // Not ready, for good.
  void SetStopping();

 private:
  // Requires the mutex, so that the newest value is shown last.
  void Show() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Metrics& metrics_;

  Mutex mutex_;
  Listeners* listeners_ ABSL_GUARDED_BY(mutex_) = nullptr;
  absl::Status refusal_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace atl::coordinator
