#include "base/host_port/host_port.h"

#include <optional>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace atl {
namespace {

TEST(HostPortTest, ReadsHostAndPort) {
  const auto v4 = ParseHostPort("127.0.0.1:7070");
  ASSERT_TRUE(v4.ok());
  EXPECT_EQ(v4->host, "127.0.0.1");
  EXPECT_EQ(v4->port, 7070);
  const auto v6 = ParseHostPort("[::1]:0");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(ParseHostPort("coordinator.example:65535")->port, 65535);
}

TEST(HostPortTest, RefusesWhatIsNoAddress) {
  for (const char* bad :
       {"", ":", "host", "host:", ":1", "host:x", "host:-1", "host:65536",
        "host:+1", "host:1x", "a:b:1", "[::1:1", "[]:1", "ho st:1", "/x:1",
        "unix:/x", "host:99999999999"}) {
    EXPECT_EQ(ParseHostPort(bad).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bad;
  }
}

TEST(HostPortTest, KnowsWhatStaysOnTheMachine) {
  for (const char* host :
       {"localhost", "localhost.", "LOCALHOST", "LocalHost.", "127.0.0.1",
        "127.1.2.3", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1",
        "::FFFF:7f01:203"}) {
    EXPECT_TRUE(IsLoopbackHost(host)) << host;
  }
  for (const char* host :
       {"", "0.0.0.0", "::", "10.0.0.1", "127.0.0", "127.0.0.1.example",
        "1270.0.0.1", "127.0.0.256", "localhost.example", "127.0.0.1 ", "localhost..",
        ".", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:0"}) {
    EXPECT_FALSE(IsLoopbackHost(host)) << host;
  }
}

TEST(HostPortTest, ADotAtTheEndIsNotAnotherHost) {
  EXPECT_EQ(ToComparedHost("C.Example.Org."), ToComparedHost("c.example.org"));
  EXPECT_NE(ToComparedHost("c.example.org"), ToComparedHost("example.org"));
  EXPECT_EQ(ParseHostPort("c.example.org.:1")->host, "c.example.org.");
}

TEST(HostPortTest, ALoopbackHostIsReadAsResolversKnowIt) {
  EXPECT_EQ(ParseHostPort("LocalHost.:1")->host, "localhost");
  EXPECT_EQ(ParseHostPort("127.0.0.1.:1")->host, "127.0.0.1");
  EXPECT_EQ(ParseHostPort("localhost.example.:1")->host, "localhost.example.");
}

TEST(HostPortTest, WritesWhatItReads) {
  for (const char* text : {"a.b:0", "127.0.0.1:65535", "[fe80::1%eth0]:7"}) {
    const auto read = ParseHostPort(text);
    ASSERT_TRUE(read.ok()) << text;
    EXPECT_EQ(JoinHostPort(read->host, read->port), text);
  }
}

TEST(PercentTest, DecodesTwoHexDigitsAndRefusesOthers) {
  EXPECT_EQ(PercentDecode("a%2fb+c%C3%a9"), "a/b+c\xC3\xA9");
  EXPECT_EQ(PercentDecode("a%2"), std::nullopt);
  EXPECT_EQ(PercentDecode("a%"), std::nullopt);
  EXPECT_EQ(PercentDecode("%+1"), std::nullopt);
}

}  // namespace
}  // namespace atl
