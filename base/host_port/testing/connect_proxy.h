// A proxy on loopback that knows HTTP CONNECT and nothing else: one connection
// at a time, to ports of 127.0.0.1 whatever the host. Thread-safe.

#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "base/io/unique_fd.h"

namespace atl {

class ConnectProxy {
 public:
  // It demands the value `authorization` of Proxy-Authorization; empty: none.
  explicit ConnectProxy(std::string authorization = "");
  ~ConnectProxy();
  ConnectProxy(const ConnectProxy&) = delete;
  ConnectProxy& operator=(const ConnectProxy&) = delete;

  // "http://127.0.0.1:PORT".
  std::string url() const;
  // Tunnels that were opened so far.
  int tunnel_count() const { return tunnel_count_; }

 private:
  void Run();
  void Serve(int client);
  // Copies bytes both ways until an end closes.
  void Relay(int client, int server);

  const std::string authorization_;
  UniqueFd listener_;
  UniqueFd stop_;  // Readable: the proxy ends.
  int port_ = 0;
  std::atomic<int> tunnel_count_ = 0;
  std::thread thread_;
};

}  // namespace atl
