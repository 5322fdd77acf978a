// The blocks of the internet's address space that matter to whoever dials an
// address that a peer named: this machine, its links, private networks.
//
// Pure. Thread-safe.

#pragma once

#include <sys/socket.h>

#include <optional>

#include "absl/strings/string_view.h"

namespace atl {

enum class AddressBlock {
  kPublic,
  kLoopback,     // 127.0.0.0/8, ::1
  kLinkLocal4,   // 169.254.0.0/16, where clouds have their metadata
  kLinkLocal6,   // fe80::/10
  kPrivate10,    // 10.0.0.0/8
  kPrivate172,   // 172.16.0.0/12
  kPrivate192,   // 192.168.0.0/16
  kShared,       // 100.64.0.0/10, of providers
  kUniqueLocal,  // fc00::/7
  kUnusable,     // Unspecified, 0.0.0.0/8, multicast, reserved: no host's.
};

// "10.0.0.0/8", ...; "public addresses".
absl::string_view AddressBlockName(AddressBlock block);

// The block of an address, of its bytes in network order: 4 or 16. An IPv4
// address within IPv6 (mapped, compatible, 6to4, NAT64) counts as itself. Bytes
// of another length are kUnusable.
AddressBlock FindAddressBlock(absl::string_view address_bytes);
// The same of a socket's address. Others than IPv4 and IPv6 are kUnusable.
AddressBlock FindAddressBlock(const sockaddr& address);

// The same of a host that is a literal address, in any form that resolvers
// accept (127.1, 0x7f000001), or that names this machine ("localhost" and what
// is below it). nullopt: another name, which only a resolver knows.
std::optional<AddressBlock> FindAddressBlockOfHost(absl::string_view host);

}  // namespace atl
