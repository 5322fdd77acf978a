// IP addresses as bytes, and networks of them. Pure. Thread-safe.

#pragma once

#include <sys/socket.h>

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace atl {

// The bytes of an IPv4 or IPv6 address in network order: 4 or 16, 4 for an IPv4
// address within IPv6. Empty: an address of another kind.
std::string ToAddressBytes(const sockaddr& address);
// The same of a numeric address as text. nullopt: it is none.
std::optional<std::string> ParseAddressBytes(const std::string& text);

struct Network {
  std::string address;  // Its bytes.
  int bit_count = 0;    // How many of its first bits count.

  bool Contains(absl::string_view address_bytes) const;
};

// Parses "10.0.0.0/8", "fd00::/8", or a single address. nullopt: it is none.
std::optional<Network> ParseNetwork(absl::string_view text);

}  // namespace atl
