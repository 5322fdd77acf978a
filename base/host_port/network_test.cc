#include "base/host_port/network.h"

#include <string>

#include "gtest/gtest.h"

namespace atl {
namespace {

bool Contains(const std::string& network, const std::string& address) {
  return ParseNetwork(network)->Contains(*ParseAddressBytes(address));
}

TEST(NetworkTest, ContainsTheAddressesWithItsFirstBits) {
  EXPECT_TRUE(Contains("10.0.0.0/8", "10.255.0.1"));
  EXPECT_FALSE(Contains("10.0.0.0/8", "11.0.0.1"));
  EXPECT_TRUE(Contains("10.0.0.128/25", "10.0.0.200"));
  EXPECT_FALSE(Contains("10.0.0.128/25", "10.0.0.127"));
  EXPECT_TRUE(Contains("fd00:1::/32", "fd00:1:2::3"));
  EXPECT_FALSE(Contains("fd00:1::/32", "fd00:2::3"));
  EXPECT_TRUE(Contains("0.0.0.0/0", "192.0.2.1"));
  EXPECT_FALSE(Contains("0.0.0.0/0", "fd00::1"));
}

TEST(NetworkTest, AnAddressIsANetworkOfOne) {
  EXPECT_TRUE(Contains("192.0.2.1", "192.0.2.1"));
  EXPECT_FALSE(Contains("192.0.2.1", "192.0.2.2"));
}

TEST(NetworkTest, AnIpv4AddressWithinIpv6IsItself) {
  EXPECT_TRUE(Contains("10.0.0.0/8", "::ffff:10.0.0.1"));
}

TEST(NetworkTest, WhatIsNoNetworkIsRefused) {
  for (const char* text : {"", "/", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1",
                           "10.0.0.0/x", "10.0.0/8", "host/8", "::/129"}) {
    EXPECT_FALSE(ParseNetwork(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace atl
