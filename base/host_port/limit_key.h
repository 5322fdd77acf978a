// The keys by which limits count strangers' addresses. Pure. Thread-safe.

#pragma once

#include <sys/socket.h>

#include <string>

#include "absl/strings/string_view.h"

namespace atl {

// The name under which an address counts, of its bytes in network order: 4, or
// 16, of which the first 8 count, since a host has them all. An IPv4 address
// within IPv6 counts as itself.
std::string ToLimitKey(absl::string_view address_bytes);

// The same of a socket's address, an IPv4 or IPv6 one. Others count as one.
std::string ToLimitKey(const sockaddr& address);

}  // namespace atl
