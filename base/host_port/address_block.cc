#include "base/host_port/address_block.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <cstdint>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"

namespace atl {
namespace {

using Bytes = absl::string_view;

template <typename Address>
Bytes AsBytes(const Address& address) {
  return Bytes(reinterpret_cast<const char*>(&address), sizeof(address));
}

AddressBlock FindBlock4(Bytes bytes) {
  const auto a = static_cast<uint8_t>(bytes[0]);
  const auto b = static_cast<uint8_t>(bytes[1]);
  if (a == 127) return AddressBlock::kLoopback;
  if (a == 10) return AddressBlock::kPrivate10;
  if (a == 172 && (b & 0xf0) == 16) return AddressBlock::kPrivate172;
  if (a == 192 && b == 168) return AddressBlock::kPrivate192;
  if (a == 100 && (b & 0xc0) == 64) return AddressBlock::kShared;
  if (a == 169 && b == 254) return AddressBlock::kLinkLocal4;
  if (a == 0 || a >= 224) return AddressBlock::kUnusable;
  return AddressBlock::kPublic;
}

AddressBlock FindBlock6(Bytes bytes) {
  constexpr Bytes kCompatible("\0\0\0\0\0\0\0\0\0\0\0\0", 12);
  constexpr Bytes kMapped("\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
  constexpr Bytes kNat64("\0\x64\xff\x9b\0\0\0\0\0\0\0\0", 12);
  constexpr Bytes kLocalNat64("\0\x64\xff\x9b\0\x01", 6);
  constexpr Bytes k6to4("\x20\x02", 2);
  if (absl::StartsWith(bytes, kCompatible)) {
    const Bytes last = bytes.substr(12);
    if (last == Bytes("\0\0\0\x01", 4)) return AddressBlock::kLoopback;
    return FindBlock4(last);
  }
  if (absl::StartsWith(bytes, kMapped) || absl::StartsWith(bytes, kNat64)) {
    return FindBlock4(bytes.substr(12));
  }
  if (absl::StartsWith(bytes, kLocalNat64)) return AddressBlock::kUnusable;
  if (absl::StartsWith(bytes, k6to4)) return FindBlock4(bytes.substr(2, 4));
  const auto a = static_cast<uint8_t>(bytes[0]);
  const auto b = static_cast<uint8_t>(bytes[1]);
  if ((a & 0xfe) == 0xfc) return AddressBlock::kUniqueLocal;
  if (a == 0xfe && (b & 0xc0) == 0x80) return AddressBlock::kLinkLocal6;
  // fec0::/10 was for sites; ff00::/8 is multicast.
  if (a == 0xfe || a == 0xff) return AddressBlock::kUnusable;
  return AddressBlock::kPublic;
}

}  // namespace

absl::string_view AddressBlockName(AddressBlock block) {
  switch (block) {
    case AddressBlock::kPublic:
      return "public addresses";
    case AddressBlock::kLoopback:
      return "loopback";
    case AddressBlock::kLinkLocal4:
      return "169.254.0.0/16";
    case AddressBlock::kLinkLocal6:
      return "fe80::/10";
    case AddressBlock::kPrivate10:
      return "10.0.0.0/8";
    case AddressBlock::kPrivate172:
      return "172.16.0.0/12";
    case AddressBlock::kPrivate192:
      return "192.168.0.0/16";
    case AddressBlock::kShared:
      return "100.64.0.0/10";
    case AddressBlock::kUniqueLocal:
      return "fc00::/7";
    case AddressBlock::kUnusable:
      return "addresses of no host";
  }
  return "";
}

AddressBlock FindAddressBlock(absl::string_view address_bytes) {
  if (address_bytes.size() == 4) return FindBlock4(address_bytes);
  if (address_bytes.size() == 16) return FindBlock6(address_bytes);
  return AddressBlock::kUnusable;
}

AddressBlock FindAddressBlock(const sockaddr& address) {
  switch (address.sa_family) {
    case AF_INET6:
      return FindAddressBlock(
          AsBytes(reinterpret_cast<const sockaddr_in6&>(address).sin6_addr));
    case AF_INET:
      return FindAddressBlock(
          AsBytes(reinterpret_cast<const sockaddr_in&>(address).sin_addr));
    default:
      return AddressBlock::kUnusable;
  }
}

std::optional<AddressBlock> FindAddressBlockOfHost(absl::string_view host) {
  absl::ConsumeSuffix(&host, ".");
  const std::string name =
      absl::AsciiStrToLower(host.substr(0, host.find('%')));
  if (name == "localhost" || absl::EndsWith(name, ".localhost")) {
    return AddressBlock::kLoopback;
  }
  in6_addr six;
  if (::inet_pton(AF_INET6, name.c_str(), &six) == 1) {
    return FindAddressBlock(AsBytes(six));
  }
  in_addr four;
  // Ignores what follows a space.
  if (name.find_first_not_of("0123456789abcdefx.") == std::string::npos &&
      ::inet_aton(name.c_str(), &four) == 1) {
    return FindAddressBlock(AsBytes(four));
  }
  return std::nullopt;
}

}  // namespace atl
