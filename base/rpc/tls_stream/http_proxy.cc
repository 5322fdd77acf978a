#include "base/rpc/tls_stream/http_proxy.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl::rpc {
namespace {

constexpr size_t kAnswerBytesMax = 8 << 10;
constexpr absl::string_view kEnd = "\r\n\r\n";
constexpr size_t kLineBytesShown = 200;

bool IsTransient(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

absl::Status SendAll(int fd, absl::string_view bytes,
                     const WaitLimits& limits) {
  while (!bytes.empty()) {
    RETURN_IF_ERROR(WaitForSocket(fd, POLLOUT, limits));
    const ssize_t count =
        send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && !IsTransient(errno)) {
      return absl::UnavailableError(
          ErrnoToStatus(errno, "the proxy").message());
    }
    if (count > 0) bytes.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

// Reads an answer's status line and headers. The target says nothing before it
// is spoken to, so nothing follows them.
absl::StatusOr<std::string> ReceiveHeaders(int fd, const WaitLimits& limits) {
  std::string answer;
  while (!absl::StrContains(answer, kEnd)) {
    if (answer.size() > kAnswerBytesMax) {
      return absl::UnavailableError("the proxy's answer is too long");
    }
    RETURN_IF_ERROR(WaitForSocket(fd, POLLIN, limits));
    char bytes[1024];
    const ssize_t count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count < 0 && IsTransient(errno)) continue;
    if (count <= 0) {
      return absl::UnavailableError(
          count == 0 ? "the proxy closed the connection"
                     : ErrnoToStatus(errno, "the proxy").message());
    }
    answer.append(bytes, static_cast<size_t>(count));
  }
  return answer;
}

}  // namespace

absl::StatusOr<UniqueFd> DialThroughProxy(const HostPort& proxy,
                                          const HostPort& target,
                                          const WaitLimits& limits) {
  ASSIGN_OR_RETURN(UniqueFd fd, Dial(proxy, limits));
  const std::string host = JoinHostPort(target.host, target.port);
  RETURN_IF_ERROR(SendAll(
      fd.get(),
      absl::StrCat("CONNECT ", host, " HTTP/1.1\r\nHost: ", host, "\r\n\r\n"),
      limits));
  ASSIGN_OR_RETURN(const std::string answer, ReceiveHeaders(fd.get(), limits));
  // "HTTP/1.1 200 Connection established"
  const std::string line =
      answer.substr(0, answer.find('\r')).substr(0, kLineBytesShown);
  const size_t code = line.find(' ');
  const bool is_accepted = absl::StartsWith(line, "HTTP/1.") &&
                           code != std::string::npos && line[code + 1] == '2';
  if (!is_accepted) {
    return absl::UnavailableError(
        absl::StrCat("the proxy refuses: ", absl::CHexEscape(line)));
  }
  return fd;
}

}  // namespace atl::rpc
