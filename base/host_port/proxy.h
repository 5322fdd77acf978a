// The HTTP proxy through which a program dials others, by CONNECT.
//
// Pure. Thread-safe.

#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/host_port/host_port.h"

namespace atl {

struct Proxy {
  HostPort address;         // Port 0: there is no proxy.
  std::string credentials;  // "USER:PASSWORD", a secret; empty: none.
  // Hosts that are dialled directly, in the form of NO_PROXY: names, which
  // stand for what is below them too, IP addresses and networks (10.0.0.0/8),
  // with commas between; "*": all hosts.
  std::string no_proxy;
  // The error of a host that the proxy serves but that cannot be dialled, with
  // a remedy; empty: none. If set, the proxy has no address.
  std::string fault;

  // Returns whether `host` is dialled through the proxy. A loopback host never
  // is: on the proxy's machine it would be another one.
  bool Serves(absl::string_view host) const;

  // INVALID_ARGUMENT: the fault. To be asked before a host that it serves is
  // dialled.
  absl::Status CheckUsable() const;

  // "HOST:PORT": for messages, without the credentials.
  std::string name() const { return JoinHostPort(address.host, address.port); }

  // "Basic BASE64", the value of Proxy-Authorization; empty: none.
  std::string authorization() const;
};

// Parses "http://[USER:PASSWORD@]HOST:PORT", where %XX stands for a character
// of USER and PASSWORD. Empty: no proxy. INVALID_ARGUMENT: not of that form.
// The message repeats no password.
absl::StatusOr<Proxy> ParseProxy(absl::string_view url);

// The URL without user and password, for people.
std::string RedactProxy(absl::string_view url);

// "the proxy HOST:PORT answered CODE to CONNECT TARGET", and what to do.
std::string DescribeRefusal(absl::string_view proxy, int code,
                            absl::string_view target);

}  // namespace atl
