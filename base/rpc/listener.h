// A listening port with its gRPC services.
//
// Plaintext is the default on loopback. Off loopback a listener starts only
// with mutual TLS or an explicit --insecure. Under TLS every call's certificate
// and role are checked before its handler runs (base/rpc/call_guard.h), and new
// connections use the TLS files as they are then.
//
//   RpcServer::Spec spec;
//   spec.listener.address = "127.0.0.1:0";
//   spec.services = {&run_service};
//   ASSIGN_OR_RETURN(auto server, RpcServer::Start(spec));
//   server->SetServing(true);  // Once recovered.
//
// Every listener also serves health (NOT_SERVING until SetServing) and
// reflection. Compression is off: a compressed message could expand to any
// size.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/metrics/metrics.h"
#include "base/net/bounded_listener.h"
#include "base/rpc/call_guard.h"
#include "base/rpc/channel.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/health_service.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "prometheus/collectable.h"

namespace atl::rpc {

struct ListenerOptions {
  std::string address = "127.0.0.1:0";  // host:port; port 0 picks a free one.
  TlsFiles tls;
  bool insecure = false;  // Plaintext off loopback.
  // At this age, give or take a tenth, a connection accepts no further calls.
  // It is closed after the same time again, at most a minute. Calls still open
  // then end with UNAVAILABLE; watches and bulk streams reconnect and resume.
  // Nothing else bounds a request whose bytes never end.
  absl::Duration connection_age_max = absl::Minutes(10);
};

// INVALID_ARGUMENT: the address is malformed; some TLS files are missing; both
// TLS and --insecure are given, or neither off loopback; `connection_age_max`
// is not in [1 s, 24 h]. Messages name the flags.
absl::Status CheckListener(const ListenerOptions& options);

// A running gRPC server. Thread-safe.
class RpcServer {
 public:
  struct Spec {
    ListenerOptions listener;
    // Registered in this order; each must outlive the server. Under TLS all
    // their methods must have callback handlers.
    std::vector<grpc::Service*> services;
    // Largest message, either way.
    int message_bytes_max = kControlMessageBytesMax;
    // Bound of gRPC's buffers, for all connections together. gRPC does not count
    // its slices, which small_frames.h bounds.
    int64_t memory_bytes_max = int64_t{1} << 30;
    // Bytes that a peer may send on a call ahead of the message being read; for
    // ports with bulk streams, where no connection is held (refused_callers.h).
    // 0: gRPC adapts it to the link's capacity.
    int receive_window_bytes = 0;
    // A connection must complete TLS and send HTTP/2's first frame within this
    // time, or it is closed. gRPC's own bound is two minutes, and keepalive
    // begins only after TLS. Not shorter for the first byte: a client without
    // a call in progress may leave a new connection alone between two attempts.
    absl::Duration handshake_timeout = absl::Seconds(20);
    // Counts calls and connections; null: nothing does. Must outlive the server.
    Metrics* metrics = nullptr;
    // Time without traffic before a ping.
    absl::Duration keepalive_time = absl::Seconds(20);
  };

  // Listens and serves.
  // INVALID_ARGUMENT: as CheckListener, or a TLS file does not match.
  // NOT_FOUND: a TLS file cannot be read.
  // FAILED_PRECONDITION: the port cannot be bound.
  // INTERNAL: under TLS, a method's calls cannot be checked.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const Spec& spec);

  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  int port() const { return port_; }
  // host:port, with the host of the listener's address.
  const std::string& address() const { return address_; }

  // Sets the health answer for every name. Pass true only when calls can be
  // served: after recovery.
  void SetServing(bool serving);
  // Sets the answer for one name, until the next SetServing for all.
  void SetServing(const std::string& name, bool serving);

  // Refuses new calls, waits up to 200 ms for open ones, then cancels them and
  // waits for their handlers. Idempotent.
  void Stop();

 private:
  RpcServer() = default;

  // Accepts connections and hands them to gRPC, which does all else.
  std::shared_ptr<net::BoundedListener> listener_;
  std::shared_ptr<prometheus::Collectable> connection_metrics_;
  std::unique_ptr<CallGuard> guard_;
  HealthService health_;
  std::unique_ptr<grpc::Service> reflection_;
  // Under TLS, what stands for the services.
  std::vector<std::unique_ptr<grpc::Service>> guarded_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  int port_ = 0;
  std::string address_;
};

}  // namespace atl::rpc
