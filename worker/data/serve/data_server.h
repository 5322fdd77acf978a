// An HTTPS server of one published directory, for islands that show the data
// token of their enrolment. It needs no coordinator.
//
// Strangers reach it, so whatever a peer does is bounded:
//   opens many connections      256 in all, half of them without a token
//                               (base/net/bounded_listener.h); 64 of one token
//   is idle, reads or sends     1 s to the first byte; a connection that moves
//   slowly                      less than 1 KiB/s for a minute is closed
//   sends a body or long        no body is read; 16 KiB of headers
//   headers
//   asks without a token        401 before any file is touched
//
// A connection that has sent something costs a thread. Thread-safe.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/host_port/host_port.h"
#include "base/host_port/network.h"
#include "worker/data/serve/data_answer.h"

namespace atl::worker {

struct DataServerOptions {
  std::string directory;  // With a manifest.json.
  HostPort listen;        // Port 0 takes a free one.
  std::vector<Network> trusted_proxies;  // As of net::BoundedListener.
  // PEM files; read again when they change.
  std::string cert_path;
  std::string key_path;
  DataAccess access;
  double bytes_per_second = 0;  // For all connections together; 0: no limit.
  // Lowered by tests.
  absl::Duration stall_timeout = absl::Minutes(1);
  absl::Duration watch_period = absl::Seconds(1);
};

class DataServer {
 public:
  struct Counts {
    int64_t request_count = 0;  // Requests answered with bytes.
    int64_t refused_count = 0;  // Other requests.
    int64_t sent_bytes = 0;     // Bytes of files.
  };

  // Errors: as ServedFiles::Open, rpc::TlsSource::Open and
  // net::BoundedListener::Listen.
  // RESOURCE_EXHAUSTED: too few threads, files or too little memory.
  static absl::StatusOr<std::unique_ptr<DataServer>> Start(
      const DataServerOptions& options);
  // Cuts every connection.
  ~DataServer();
  DataServer(const DataServer&) = delete;
  DataServer& operator=(const DataServer&) = delete;

  const HostPort& address() const { return address_; }
  const ServedFiles& files() const;
  Counts counts() const;

 private:
  class Impl;
  DataServer();

  std::unique_ptr<Impl> impl_;
  HostPort address_;
};

}  // namespace atl::worker
