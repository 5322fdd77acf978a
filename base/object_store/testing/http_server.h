// An HTTP server on loopback whose answers a test gives, with faults.
// Thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/object_store/object_url.h"
#include "base/rpc/certificates/tls.h"

struct MHD_Daemon;

namespace atl {

struct ServerRequest {
  std::string method;
  std::string target;  // Path and query as they came, undecoded.
  std::map<std::string, std::string> headers;  // By lower-case name.
  std::string body;
};

struct ServerAnswer {
  int code = 200;
  HttpHeaders headers;
  std::string body;
  // After so many bytes of the body the connection is closed, or nothing more
  // is sent. Negative: never.
  int64_t cut_after = -1;
  int64_t stall_after = -1;
};

class HttpServer {
 public:
  // Called by a thread for each connection.
  using Handler = std::function<ServerAnswer(const ServerRequest&)>;

  // Listens on a free port of 127.0.0.1; with `tls` for https://.
  explicit HttpServer(Handler handler, const rpc::TlsFiles* tls = nullptr);
  // Ends stalled answers.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  // "http://127.0.0.1:PORT", or https://.
  std::string origin() const;
  // All requests so far.
  std::vector<ServerRequest> requests() const;
  // Connections that were accepted so far.
  int connection_count() const;

 private:
  struct State;

  std::unique_ptr<State> state_;
  bool is_tls_ = false;
  MHD_Daemon* daemon_ = nullptr;
  int port_ = 0;
};

}  // namespace atl
