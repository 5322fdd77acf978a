#include "base/net/http_proxy.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl::net {
namespace {

constexpr size_t kAnswerBytesMax = 8 << 10;
constexpr absl::string_view kEnd = "\r\n\r\n";
constexpr size_t kLineBytesShown = 200;

absl::Status SendAll(int fd, absl::string_view bytes,
                     const WaitLimits& limits) {
  while (!bytes.empty()) {
    RETURN_IF_ERROR(WaitForSocket(fd, POLLOUT, limits));
    const ssize_t count =
        send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && !WouldBlock(errno)) {
      return absl::UnavailableError(ErrnoToStatus(errno, "send").message());
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
      return absl::UnavailableError("its answer is too long");
    }
    RETURN_IF_ERROR(WaitForSocket(fd, POLLIN, limits));
    char bytes[1024];
    const ssize_t count = recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count < 0 && WouldBlock(errno)) continue;
    if (count <= 0) {
      return absl::UnavailableError(
          count == 0 ? "it closed the connection"
                     : ErrnoToStatus(errno, "receive").message());
    }
    answer.append(bytes, static_cast<size_t>(count));
  }
  return answer;
}

// The code of "HTTP/1.1 200 Connection established".
absl::StatusOr<int> ParseCode(absl::string_view answer) {
  const absl::string_view line =
      answer.substr(0, answer.find('\r')).substr(0, kLineBytesShown);
  const size_t at = line.find(' ');
  int code = 0;
  if (!absl::StartsWith(line, "HTTP/1.") || at == absl::string_view::npos ||
      !absl::SimpleAtoi(line.substr(at + 1, 3), &code)) {
    return absl::UnavailableError(absl::StrCat(
        "it answers \"", absl::CHexEscape(line), "\", so it is no proxy"));
  }
  return code;
}

}  // namespace

absl::StatusOr<UniqueFd> Dial(const HostPort& target, const Proxy& proxy,
                              const WaitLimits& limits) {
  if (!proxy.Serves(target.host)) return Dial(target, limits);
  RETURN_IF_ERROR(proxy.CheckUsable());
  const std::string who = absl::StrCat("the proxy ", proxy.name());
  absl::StatusOr<UniqueFd> fd = Dial(proxy.address, limits);
  RETURN_IF_ERROR(Annotate(fd.status(), who));
  const std::string host = JoinHostPort(target.host, target.port);
  std::string request =
      absl::StrCat("CONNECT ", host, " HTTP/1.1\r\nHost: ", host, "\r\n");
  if (const std::string value = proxy.authorization(); !value.empty()) {
    absl::StrAppend(&request, "Proxy-Authorization: ", value, "\r\n");
  }
  RETURN_IF_ERROR(
      Annotate(SendAll(fd->get(), absl::StrCat(request, "\r\n"), limits), who));
  const absl::StatusOr<std::string> answer = ReceiveHeaders(fd->get(), limits);
  RETURN_IF_ERROR(Annotate(answer.status(), who));
  const absl::StatusOr<int> code = ParseCode(*answer);
  RETURN_IF_ERROR(Annotate(code.status(), who));
  if (*code / 100 == 2) return fd;
  return absl::UnavailableError(DescribeRefusal(proxy.name(), *code, host));
}

}  // namespace atl::net
