#include "base/host_port/testing/connect_proxy.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status/check.h"

namespace atl {
namespace {

sockaddr_in MakeAddress(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

bool SendAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(n);
  }
  return true;
}

// The port of "CONNECT HOST:PORT HTTP/1.1".
int ParsePort(const std::string& request) {
  const absl::string_view line(request.data(), request.find("\r\n"));
  const size_t end = line.rfind(' ');
  const size_t begin = line.rfind(':', end) + 1;
  int port = 0;
  if (!absl::StartsWith(line, "CONNECT ") ||
      !absl::SimpleAtoi(line.substr(begin, end - begin), &port)) {
    return 0;
  }
  return port;
}

}  // namespace

ConnectProxy::ConnectProxy(std::string authorization)
    : authorization_(std::move(authorization)),
      listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)),
      stop_(MakeWaker().value()) {
  sockaddr_in address = MakeAddress(0);
  socklen_t address_bytes = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  CHECK_EQ(bind(listener_.get(), generic, address_bytes), 0);
  CHECK_EQ(listen(listener_.get(), 8), 0);
  CHECK_EQ(getsockname(listener_.get(), generic, &address_bytes), 0);
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { Run(); });
}

ConnectProxy::~ConnectProxy() {
  SetWaker(stop_.get());
  thread_.join();
}

std::string ConnectProxy::url() const {
  return absl::StrCat("http://127.0.0.1:", port_);
}

void ConnectProxy::Run() {
  while (true) {
    pollfd polled[] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    poll(polled, 2, -1);
    if (polled[1].revents != 0) return;
    const UniqueFd client(accept(listener_.get(), nullptr, nullptr));
    if (client.valid()) Serve(client.get());
  }
}

void ConnectProxy::Serve(int client) {
  std::string request;
  while (!absl::StrContains(request, "\r\n\r\n")) {
    char bytes[4096];
    const ssize_t n = recv(client, bytes, sizeof(bytes), 0);
    if (n <= 0) return;
    request.append(bytes, n);
  }
  const std::string wanted =
      absl::StrCat("Proxy-Authorization: ", authorization_, "\r\n");
  if (!authorization_.empty() && !absl::StrContains(request, wanted)) {
    SendAll(client, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n");
    return;
  }
  const sockaddr_in address = MakeAddress(ParsePort(request));
  const UniqueFd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(server.get(), reinterpret_cast<const sockaddr*>(&address),
              sizeof(address)) != 0) {
    SendAll(client, "HTTP/1.1 502 Bad Gateway\r\n\r\n");
    return;
  }
  ++tunnel_count_;
  if (SendAll(client, "HTTP/1.1 200 OK\r\n\r\n")) Relay(client, server.get());
}

void ConnectProxy::Relay(int client, int server) {
  while (true) {
    pollfd polled[] = {
        {client, POLLIN, 0}, {server, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    poll(polled, 3, -1);
    if (polled[2].revents != 0) return;
    for (const bool from_client : {true, false}) {
      if (polled[from_client ? 0 : 1].revents == 0) continue;
      char bytes[16384];
      const ssize_t n =
          recv(from_client ? client : server, bytes, sizeof(bytes), 0);
      if (n <= 0) return;
      const absl::string_view piece(bytes, n);
      if (!SendAll(from_client ? server : client, piece)) return;
    }
  }
}

}  // namespace atl
