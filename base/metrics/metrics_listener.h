// The plaintext HTTP port of a program: health and metrics, nothing else.
//
//   GET /metrics           the metrics: OpenMetrics if Accept prefers it,
//                          else Prometheus text
//   GET /livez, /healthz   200 "ok" while the process answers
//   GET /readyz            200 "ok", or 503 with what the program waits for, or
//                          which of its ports does not answer
//
// HEAD is answered as GET. Any other method gets 405, any other path 404, a
// body is refused. The port is open to anyone who reaches it, so connections
// (base/net/bounded_listener.h), their time and memory have bounds (in the .cc
// file). Connections that ask for health first have places and a thread of
// their own: neither strangers nor a scrape that waits keep a probe out.
//
// Thread-safe.

#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/metrics/metrics.h"

namespace atl {

struct MetricsListenerOptions {
  // HOST:PORT; ":PORT" and "PORT" mean loopback; port 0 takes a free one.
  // Empty: no listener.
  std::string address;
  std::string port_file;  // Gets "PORT\n" once it listens; empty: none.
};

class MetricsListener {
 public:
  // `metrics` must outlive the listener. null if `options.address` is empty.
  // INVALID_ARGUMENT: the address is malformed; names the flag.
  // FAILED_PRECONDITION: the port cannot be bound.
  // Others: the port file cannot be written.
  static absl::StatusOr<std::unique_ptr<MetricsListener>> Start(
      const MetricsListenerOptions& options, Metrics& metrics);
  // Closes the port and its connections.
  ~MetricsListener();
  MetricsListener(const MetricsListener&) = delete;
  MetricsListener& operator=(const MetricsListener&) = delete;

  int port() const { return port_; }
  const std::string& address() const { return address_; }  // host:port

 private:
  class Impl;
  MetricsListener();

  std::unique_ptr<Impl> impl_;
  int port_ = 0;
  std::string address_;
};

}  // namespace atl
