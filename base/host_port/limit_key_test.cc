#include "base/host_port/limit_key.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>

#include "gtest/gtest.h"

namespace atl {
namespace {

std::string KeyOf(const std::string& ip) {
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  if (inet_pton(AF_INET6, ip.c_str(), &v6.sin6_addr) == 1) {
    return ToLimitKey(reinterpret_cast<const sockaddr&>(v6));
  }
  sockaddr_in v4 = {};
  v4.sin_family = AF_INET;
  EXPECT_EQ(inet_pton(AF_INET, ip.c_str(), &v4.sin_addr), 1) << ip;
  return ToLimitKey(reinterpret_cast<const sockaddr&>(v4));
}

TEST(LimitKeyTest, AnIpv4AddressCountsAlone) {
  EXPECT_EQ(KeyOf("10.0.0.1"), KeyOf("::ffff:10.0.0.1"));
  EXPECT_NE(KeyOf("10.0.0.2"), KeyOf("10.0.0.1"));
  EXPECT_EQ(KeyOf("10.0.0.1"), ToLimitKey(std::string("\x0a\x00\x00\x01", 4)));
}

TEST(LimitKeyTest, AnIpv6NetworkCountsTogether) {
  EXPECT_EQ(KeyOf("2001:db8:0:1::1"), KeyOf("2001:db8:0:1:ffff::2"));
  EXPECT_NE(KeyOf("2001:db8:0:1::1"), KeyOf("2001:db8:0:2::1"));
}

}  // namespace
}  // namespace atl
