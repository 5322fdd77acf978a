// How we serve: one listening port with its services.
//
// On loopback plaintext is the default. Off loopback a listener refuses to
// start without mutual TLS or an explicit --insecure. Under TLS every call is
// checked against the role table (base/rpc/authorization.h) before any handler
// runs.
//
//   RpcServer::Spec spec;
//   spec.listener.address = "127.0.0.1:0";
//   spec.services = {&run_service};
//   ASSIGN_OR_RETURN(auto server, RpcServer::Start(spec));
//   server->SetServing(true);  // Once recovered.
//
// Every listener also serves health (NOT_SERVING until SetServing) and
// reflection. No message is ever compressed: a compressed one could unfold to
// any size.

#ifndef BASE_RPC_LISTENER_H_
#define BASE_RPC_LISTENER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/rpc/channel.h"
#include "base/rpc/tls.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/server.h"

namespace atl::rpc {

// Where to listen, and how.
struct ListenerOptions {
  std::string address = "127.0.0.1:0";  // host:port; port 0 takes a free one.
  TlsFiles tls;
  bool insecure = false;  // Plaintext off loopback.
  // A connection of this age, give or take a tenth, is told to take no more
  // calls, and is closed after as long again, a minute at most. What goes on by
  // then ends with UNAVAILABLE: watches and bulk streams are made again where
  // they were. Nothing else bounds a request whose bytes never end.
  absl::Duration connection_age_max = absl::Minutes(10);
};

// OK if a listener may start with these options.
//
// INVALID_ARGUMENT: the address is malformed; only some TLS files are given, or
// TLS and --insecure; the address is off loopback and neither is; connections
// have less than a second. Messages name the flags.
absl::Status CheckListener(const ListenerOptions& options);

// A running gRPC server. Thread-safe.
class RpcServer {
 public:
  struct Spec {
    ListenerOptions listener;
    // Registered in this order; each must outlive the server.
    std::vector<grpc::Service*> services;
    // Largest message, either way.
    int message_bytes_max = kControlMessageBytesMax;
    // Bound of gRPC's buffers, all connections together.
    int64_t memory_bytes_max = int64_t{1} << 30;
    // What a peer may send on a call before anybody reads it, beside the
    // message that is being read; 0 lets gRPC find out what the link carries.
    int receive_window_bytes = 0;
    // Bound of the threads of handlers that are synchronous.
    int thread_count_max = 64;
    // A connection that has not said who it is by then (TLS, and HTTP/2's first
    // frame) is closed. gRPC's own bound is two minutes, and keepalive begins
    // after TLS.
    absl::Duration handshake_timeout = absl::Seconds(20);
    // A ping after this long without traffic; the wait for its answer.
    absl::Duration keepalive_time = absl::Seconds(20);
    absl::Duration keepalive_timeout = absl::Seconds(20);
    // Calls that are still open this long after Stop are cancelled.
    absl::Duration stop_grace = absl::Milliseconds(200);
  };

  // Listens and serves.
  //
  // INVALID_ARGUMENT: as CheckListener; a TLS file does not fit.
  // NOT_FOUND: a TLS file cannot be read.
  // FAILED_PRECONDITION: the port cannot be had.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const Spec& spec);

  // Stops, as Stop does.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // The port that it listens on.
  int port() const { return port_; }
  // host:port, with the host of the listener's address.
  const std::string& address() const { return address_; }

  // What health answers, for every name. Recovered is not merely open: say
  // true once calls can be served.
  void SetServing(bool serving);
  // What it answers for a name of its own, until the next SetServing of all.
  void SetServing(const std::string& name, bool serving);

  // Takes no more calls, waits for the open ones up to `stop_grace`, then
  // cancels them and waits for their handlers. Idempotent.
  void Stop();

 private:
  RpcServer() = default;

  std::unique_ptr<grpc::Server> server_;
  absl::Duration stop_grace_;
  int port_ = 0;
  std::string address_;
};

}  // namespace atl::rpc

#endif  // BASE_RPC_LISTENER_H_
