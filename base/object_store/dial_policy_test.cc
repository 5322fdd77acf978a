#include "base/object_store/dial_policy.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

using ::testing::HasSubstr;

HttpUrl Url(const std::string& host, bool is_https = true) {
  return {.is_https = is_https, .host = host};
}

bool Allows(const DialPolicy& policy, const HttpUrl& url,
            const std::string& address) {
  sockaddr_in socket{};
  socket.sin_family = AF_INET;
  EXPECT_EQ(::inet_pton(AF_INET, address.c_str(), &socket.sin_addr), 1);
  const absl::Status status =
      policy.Check(url, reinterpret_cast<const sockaddr&>(socket));
  if (!status.ok()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("--allow-data-host " + url.host));
  }
  return status.ok();
}

TEST(DialPolicyTest, BareItAllowsHttpsToPublicAddressesOnly) {
  const DialPolicy policy;
  EXPECT_TRUE(Allows(policy, Url("a.org"), "8.8.8.8"));
  EXPECT_FALSE(Allows(policy, Url("a.org", false), "8.8.8.8"));
  for (const char* address :
       {"127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "100.64.0.1",
        "169.254.169.254", "0.0.0.0", "224.0.0.1", "255.255.255.255"}) {
    EXPECT_FALSE(Allows(policy, Url("a.org"), address)) << address;
    EXPECT_FALSE(Allows(policy, Url("a.org", false), address)) << address;
  }
}

TEST(DialPolicyTest, ABlockAllowsItsOwnAddressesAndHttp) {
  const DialPolicy policy({AddressBlock::kPrivate10}, {});
  EXPECT_TRUE(Allows(policy, Url("a.org"), "10.1.2.3"));
  EXPECT_TRUE(Allows(policy, Url("a.org", false), "10.1.2.3"));
  EXPECT_FALSE(Allows(policy, Url("a.org"), "192.168.1.1"));
  EXPECT_FALSE(Allows(policy, Url("a.org"), "127.0.0.1"));
  EXPECT_FALSE(Allows(policy, Url("a.org", false), "8.8.8.8"));
}

TEST(DialPolicyTest, ACoordinatorInPublicAllowsNoPlaintext) {
  const DialPolicy policy({AddressBlock::kPublic, AddressBlock::kUnusable}, {});
  EXPECT_FALSE(Allows(policy, Url("a.org", false), "8.8.8.8"));
  EXPECT_FALSE(Allows(policy, Url("a.org"), "0.0.0.0"));
}

TEST(DialPolicyTest, AHostIsAllowedByTheNameInTheUrl) {
  const DialPolicy policy({}, {"Data.LAN", "[fd00::1]"});
  EXPECT_TRUE(Allows(policy, Url("data.lan"), "192.168.1.1"));
  EXPECT_TRUE(Allows(policy, Url("data.lan", false), "192.168.1.1"));
  EXPECT_TRUE(Allows(policy, Url("fd00::1"), "192.168.1.1"));
  EXPECT_FALSE(Allows(policy, Url("other.lan"), "192.168.1.1"));
  EXPECT_FALSE(Allows(policy, Url("x.data.lan"), "192.168.1.1"));
}

TEST(DialPolicyTest, ThroughAProxyALiteralAddressIsJudged) {
  const DialPolicy policy({AddressBlock::kPrivate10}, {"data.lan"});
  for (const char* host : {"192.168.1.1", "169.254.169.254", "2130706433",
                           "0x7f.1", "::1", "a.localhost"}) {
    EXPECT_FALSE(policy.CheckProxied(Url(host)).ok()) << host;
  }
  EXPECT_TRUE(policy.CheckProxied(Url("10.0.0.1")).ok());
  EXPECT_TRUE(policy.CheckProxied(Url("a.org")).ok());
  EXPECT_FALSE(policy.CheckProxied(Url("a.org", false)).ok());
  EXPECT_TRUE(policy.CheckProxied(Url("data.lan", false)).ok());
}

}  // namespace
}  // namespace atl
