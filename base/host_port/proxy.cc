#include "base/host_port/proxy.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/host_port/network.h"

namespace atl {
namespace {

// Returns whether `entry` of NO_PROXY stands for the lower-case `host`.
bool IsListed(absl::string_view entry, const std::string& host) {
  std::string name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(entry));
  if (name.empty()) return false;
  if (const absl::StatusOr<HostPort> address = ParseHostPort(name);
      address.ok() && !absl::StrContains(name, '/')) {
    name = address->host;
  }
  name = ToComparedHost(name);
  if (name == "*" || name == host) return true;
  if (const auto ip = ParseAddressBytes(host)) {
    const std::optional<Network> network = ParseNetwork(name);
    return network.has_value() && network->Contains(*ip);
  }
  if (name[0] == '*') name.erase(0, 1);
  if (name[0] != '.') name.insert(0, ".");
  return absl::EndsWith(host, name);
}

bool IsPrintable(absl::string_view text) {
  return std::none_of(text.begin(), text.end(), absl::ascii_iscntrl);
}

}  // namespace

bool Proxy::Serves(absl::string_view host) const {
  if (address.port == 0 && fault.empty()) return false;
  if (IsLoopbackHost(host)) return false;
  const std::string name = ToComparedHost(host);
  for (const absl::string_view entry : absl::StrSplit(no_proxy, ',')) {
    if (IsListed(entry, name)) return false;
  }
  return true;
}

absl::Status Proxy::CheckUsable() const {
  return fault.empty() ? absl::OkStatus() : absl::InvalidArgumentError(fault);
}

std::string Proxy::authorization() const {
  if (credentials.empty()) return "";
  return absl::StrCat("Basic ", absl::Base64Escape(credentials));
}

absl::StatusOr<Proxy> ParseProxy(absl::string_view url) {
  Proxy proxy;
  if (url.empty()) return proxy;
  const absl::Status wrong = absl::InvalidArgumentError(
      absl::StrCat("the proxy \"", absl::CHexEscape(RedactProxy(url)),
                   "\" is not of the form http://[USER:PASSWORD@]HOST:PORT"));
  absl::string_view rest = url;
  if (!absl::ConsumePrefix(&rest, "http://")) return wrong;
  absl::ConsumeSuffix(&rest, "/");
  const size_t at = rest.rfind('@');
  if (at != absl::string_view::npos) {
    const auto credentials = PercentDecode(rest.substr(0, at));
    if (!credentials.has_value() || !IsPrintable(*credentials) ||
        !absl::StrContains(*credentials, ":")) {
      return wrong;
    }
    proxy.credentials = *credentials;
    rest.remove_prefix(at + 1);
  }
  const absl::StatusOr<HostPort> address = ParseHostPort(rest);
  if (!address.ok() || address->port == 0) return wrong;
  proxy.address = *address;
  return proxy;
}

std::string RedactProxy(absl::string_view url) {
  const size_t at = url.rfind('@');
  if (at == absl::string_view::npos) return std::string(url);
  const size_t scheme = url.find("://");
  const bool has_scheme = scheme != absl::string_view::npos && scheme < at;
  return absl::StrCat(has_scheme ? url.substr(0, scheme + 3) : "", "***",
                      url.substr(at));
}

std::string DescribeRefusal(absl::string_view proxy, int code,
                            absl::string_view target) {
  return absl::StrCat("the proxy ", proxy, " answered ", code, " to CONNECT",
                      target.empty() ? "" : " ", target,
                      code == 407 ? ": it wants a user name and a password, "
                                    "--proxy http://USER:PASSWORD@HOST:PORT"
                                  : "");
}

}  // namespace atl
