#include "base/host_port/address_block.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using enum AddressBlock;

AddressBlock FindOfSocket(const std::string& text) {
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  if (absl::StrContains(text, ":")) {
    EXPECT_EQ(::inet_pton(AF_INET6, text.c_str(), &six.sin6_addr), 1) << text;
    return FindAddressBlock(reinterpret_cast<const sockaddr&>(six));
  }
  EXPECT_EQ(::inet_pton(AF_INET, text.c_str(), &four.sin_addr), 1) << text;
  return FindAddressBlock(reinterpret_cast<const sockaddr&>(four));
}

TEST(AddressBlockTest, EachBlockFromItsFirstAddressToItsLast) {
  const std::vector<std::pair<std::string, AddressBlock>> addresses = {
      {"0.0.0.0", kUnusable},
      {"0.255.255.255", kUnusable},
      {"1.0.0.0", kPublic},
      {"9.255.255.255", kPublic},
      {"10.0.0.0", kPrivate10},
      {"10.255.255.255", kPrivate10},
      {"11.0.0.0", kPublic},
      {"100.63.255.255", kPublic},
      {"100.64.0.0", kShared},
      {"100.127.255.255", kShared},
      {"100.128.0.0", kPublic},
      {"126.255.255.255", kPublic},
      {"127.0.0.0", kLoopback},
      {"127.0.0.1", kLoopback},
      {"127.255.255.255", kLoopback},
      {"128.0.0.0", kPublic},
      {"169.253.255.255", kPublic},
      {"169.254.0.0", kLinkLocal4},
      {"169.254.169.254", kLinkLocal4},
      {"169.254.255.255", kLinkLocal4},
      {"169.255.0.0", kPublic},
      {"172.15.255.255", kPublic},
      {"172.16.0.0", kPrivate172},
      {"172.31.255.255", kPrivate172},
      {"172.32.0.0", kPublic},
      {"192.167.255.255", kPublic},
      {"192.168.0.0", kPrivate192},
      {"192.168.255.255", kPrivate192},
      {"192.169.0.0", kPublic},
      {"223.255.255.255", kPublic},
      {"224.0.0.1", kUnusable},
      {"239.255.255.255", kUnusable},
      {"240.0.0.0", kUnusable},
      {"255.255.255.255", kUnusable},
      {"::", kUnusable},
      {"::1", kLoopback},
      {"::2", kUnusable},
      {"::127.0.0.1", kLoopback},
      {"::ffff:127.0.0.1", kLoopback},
      {"::ffff:10.0.0.1", kPrivate10},
      {"::ffff:169.254.169.254", kLinkLocal4},
      {"::ffff:8.8.8.8", kPublic},
      {"64:ff9b::7f00:1", kLoopback},
      {"64:ff9b::808:808", kPublic},
      {"64:ff9b:1::1", kUnusable},
      {"2001:4860:4860::8888", kPublic},
      {"2002:c0a8:101::1", kPrivate192},
      {"2002:808:808::1", kPublic},
      {"fbff::1", kPublic},
      {"fc00::", kUniqueLocal},
      {"fd00:ec2::254", kUniqueLocal},
      {"fdff:ffff::1", kUniqueLocal},
      {"fe7f::1", kUnusable},
      {"fe80::1", kLinkLocal6},
      {"febf::1", kLinkLocal6},
      {"fec0::1", kUnusable},
      {"ff02::1", kUnusable},
  };
  for (const auto& [text, block] : addresses) {
    EXPECT_EQ(FindOfSocket(text), block) << text;
    EXPECT_EQ(FindAddressBlockOfHost(text), block) << text;
  }
}

TEST(AddressBlockTest, OtherFormsOfAnAddressAreNoWayAround) {
  for (const char* host :
       {"localhost", "LOCALHOST", "localhost.", "a.localhost", "127.1",
        "0x7f.1", "0x7f000001", "2130706433", "017700000001", "127.0.0.1.",
        "::1%lo"}) {
    EXPECT_EQ(FindAddressBlockOfHost(host), kLoopback) << host;
  }
  EXPECT_EQ(FindAddressBlockOfHost("0xa9fea9fe"), kLinkLocal4);
  EXPECT_EQ(FindAddressBlockOfHost("fe80::1%eth0"), kLinkLocal6);
  EXPECT_EQ(FindAddressBlockOfHost("0"), kUnusable);
  for (const char* host : {"example.org", "localhost.example.org", "127.0.0.1x",
                           "mylocalhost", "256.0.0.1", ""}) {
    EXPECT_EQ(FindAddressBlockOfHost(host), std::nullopt) << host;
  }
}

TEST(AddressBlockTest, UnknownFamiliesAreOfNoHost) {
  sockaddr other{};
  other.sa_family = AF_UNIX;
  EXPECT_EQ(FindAddressBlock(other), kUnusable);
  EXPECT_EQ(FindAddressBlock("abc"), kUnusable);
}

}  // namespace
}  // namespace atl
