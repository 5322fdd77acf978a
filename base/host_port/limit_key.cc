#include "base/host_port/limit_key.h"

#include <netinet/in.h>

#include "absl/strings/strip.h"

namespace atl {
namespace {

constexpr size_t kIpv6PrefixBytes = 8;
constexpr absl::string_view kIpv4InIpv6("\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);

template <typename Bytes>
std::string KeyOf(const Bytes& address) {
  return ToLimitKey(absl::string_view(reinterpret_cast<const char*>(&address),
                                      sizeof(address)));
}

}  // namespace

std::string ToLimitKey(absl::string_view address_bytes) {
  if (absl::ConsumePrefix(&address_bytes, kIpv4InIpv6)) {
    return std::string(address_bytes);
  }
  return std::string(address_bytes.substr(0, kIpv6PrefixBytes));
}

std::string ToLimitKey(const sockaddr& address) {
  switch (address.sa_family) {
    case AF_INET6:
      return KeyOf(reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
    case AF_INET:
      return KeyOf(reinterpret_cast<const sockaddr_in&>(address).sin_addr);
    default:
      return "";
  }
}

}  // namespace atl
