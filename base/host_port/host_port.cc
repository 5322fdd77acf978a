#include "base/host_port/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace atl {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// True for four decimal numbers in [0, 255], the first of them 127.
bool IsLoopbackV4(absl::string_view host) {
  int parts[4];
  for (int i = 0; i < 4; ++i) {
    size_t length = 0;
    while (length < host.size() && IsDigit(host[length])) ++length;
    if (length == 0 || length > 3 ||
        !absl::SimpleAtoi(host.substr(0, length), &parts[i]) ||
        parts[i] > 255) {
      return false;
    }
    host.remove_prefix(length);
    if (i < 3) {
      if (host.empty() || host[0] != '.') return false;
      host.remove_prefix(1);
    }
  }
  return host.empty() && parts[0] == 127;
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(absl::string_view address) {
  const auto error = [&] {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", address, "\" is not an address of the form HOST:PORT"));
  };
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return error();
  absl::string_view host = address.substr(0, colon);
  const absl::string_view port = address.substr(colon + 1);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return error();
    host = host.substr(1, host.size() - 2);
  } else if (absl::StrContains(host, ":")) {
    return error();
  }
  for (const char c : host) {
    const bool ok = IsDigit(c) || (c >= 'a' && c <= 'z') ||
                    (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
                    c == ':' || c == '_' || c == '%';
    if (!ok) return error();
  }
  HostPort result;
  // Resolvers know "localhost", and would ask a name server for "localhost.".
  result.host = IsLoopbackHost(host) ? ToComparedHost(host) : std::string(host);
  if (port.empty() || port.size() > 5 || !IsDigit(port[0]) ||
      !absl::SimpleAtoi(port, &result.port) || result.port > 65535) {
    return error();
  }
  return result;
}

std::string ToComparedHost(absl::string_view host) {
  absl::ConsumeSuffix(&host, ".");
  return absl::AsciiStrToLower(host);
}

bool IsLoopbackHost(absl::string_view host) {
  const std::string name = ToComparedHost(host);
  in6_addr six;
  if (::inet_pton(AF_INET6, name.c_str(), &six) == 1) {
    return IN6_IS_ADDR_LOOPBACK(&six) ||
           (IN6_IS_ADDR_V4MAPPED(&six) && six.s6_addr[12] == 127);
  }
  return name == "localhost" || IsLoopbackV4(name);
}

std::string JoinHostPort(absl::string_view host, int port) {
  return absl::StrContains(host, ":") ? absl::StrCat("[", host, "]:", port)
                                      : absl::StrCat(host, ":", port);
}

std::optional<std::string> PercentDecode(absl::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    const absl::string_view digits = text.substr(i + 1, 2);
    if (digits.size() != 2 || !absl::ascii_isxdigit(digits[0]) ||
        !absl::ascii_isxdigit(digits[1])) {
      return std::nullopt;
    }
    out += absl::HexStringToBytes(digits);
    i += 2;
  }
  return out;
}

}  // namespace atl
