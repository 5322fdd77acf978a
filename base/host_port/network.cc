#include "base/host_port/network.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"

namespace atl {
namespace {

constexpr absl::string_view kIpv4InIpv6("\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);

template <typename Bytes>
std::string ToBytes(const Bytes& address) {
  absl::string_view bytes(reinterpret_cast<const char*>(&address),
                          sizeof(address));
  absl::ConsumePrefix(&bytes, kIpv4InIpv6);
  return std::string(bytes);
}

}  // namespace

std::string ToAddressBytes(const sockaddr& address) {
  switch (address.sa_family) {
    case AF_INET6:
      return ToBytes(reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
    case AF_INET:
      return ToBytes(reinterpret_cast<const sockaddr_in&>(address).sin_addr);
    default:
      return "";
  }
}

std::optional<std::string> ParseAddressBytes(const std::string& text) {
  in_addr v4;
  if (inet_pton(AF_INET, text.c_str(), &v4) == 1) return ToBytes(v4);
  in6_addr v6;
  if (inet_pton(AF_INET6, text.c_str(), &v6) == 1) return ToBytes(v6);
  return std::nullopt;
}

bool Network::Contains(absl::string_view address_bytes) const {
  if (address_bytes.size() != address.size()) return false;
  for (int bit = 0; bit < bit_count; ++bit) {
    const int mask = 0x80 >> (bit % 8);
    if ((address_bytes[bit / 8] & mask) != (address[bit / 8] & mask)) {
      return false;
    }
  }
  return true;
}

std::optional<Network> ParseNetwork(absl::string_view text) {
  const size_t slash = text.find('/');
  const auto address = ParseAddressBytes(std::string(text.substr(0, slash)));
  if (!address.has_value()) return std::nullopt;
  const int bits = static_cast<int>(8 * address->size());
  Network network = {*address, bits};
  if (slash == absl::string_view::npos) return network;
  if (!absl::SimpleAtoi(text.substr(slash + 1), &network.bit_count) ||
      network.bit_count < 0 || network.bit_count > bits) {
    return std::nullopt;
  }
  return network;
}

}  // namespace atl
