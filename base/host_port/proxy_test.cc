#include "base/host_port/proxy.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(ProxyTest, AUrlNamesHostPortAndCredentials) {
  const Proxy plain = ParseProxy("http://proxy.example.org:3128/").value();
  EXPECT_EQ(plain.name(), "proxy.example.org:3128");
  EXPECT_EQ(plain.authorization(), "");
  const Proxy secret = ParseProxy("http://me:p%40ss%3a@[::1]:80").value();
  EXPECT_EQ(secret.name(), "[::1]:80");
  EXPECT_EQ(secret.credentials, "me:p@ss:");
  // The example of RFC 7617.
  EXPECT_EQ(ParseProxy("http://Aladdin:open%20sesame@p:1")->authorization(),
            "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
}

TEST(ProxyTest, AnEmptyUrlIsNoProxy) {
  EXPECT_FALSE(ParseProxy("")->Serves("example.org"));
}

TEST(ProxyTest, AMalformedUrlIsNamedWithoutItsPassword) {
  for (const char* url :
       {"p:1", "https://me:hidden@p:1", "http://p", "http://p:0",
        "http://p:99999", "http://p:1/x", "http://me:hidden%4@p:1",
        "http://me:hidden%0d%0a@p:1", "http://hidden@p:1", "me:hidden@p",
        "socks5://p:1", "http://"}) {
    const absl::Status status = ParseProxy(url).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << url;
    EXPECT_FALSE(absl::StrContains(status.message(), "hidden")) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), RedactProxy(url))) << url;
  }
}

TEST(ProxyTest, LoopbackIsDialledDirectly) {
  const Proxy proxy = ParseProxy("http://p:1").value();
  EXPECT_TRUE(proxy.Serves("example.org"));
  EXPECT_TRUE(proxy.Serves("10.0.0.7"));
  for (const char* host : {"localhost", "127.0.0.1", "127.3.2.1", "::1"}) {
    EXPECT_FALSE(proxy.Serves(host)) << host;
  }
}

TEST(ProxyTest, HostsOfNoProxyAreDialledDirectly) {
  Proxy proxy = ParseProxy("http://p:1").value();
  proxy.no_proxy = "a.org, .B.org,10.1.2.3,10.0.128.0/17,*.c.org,fd00::/8,x/y";
  for (const char* host : {"a.org", "A.ORG", "x.a.org", "x.b.org", "y.c.org",
                           "10.1.2.3", "10.0.129.7", "fd12::1"}) {
    EXPECT_FALSE(proxy.Serves(host)) << host;
  }
  for (const char* host : {"aa.org", "b.org.de", "10.1.2.4", "10.0.127.7",
                           "fe00::1", "110.0.129.7"}) {
    EXPECT_TRUE(proxy.Serves(host)) << host;
  }
  proxy.no_proxy = "*";
  EXPECT_FALSE(proxy.Serves("example.org"));
}

}  // namespace
}  // namespace atl
