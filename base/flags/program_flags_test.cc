#include "base/flags/program_flags.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::flags {
namespace {

using ::testing::HasSubstr;

TEST(ProgramFlagsTest, SetWhatTheProgramReads) {
  Command command("test", "");
  rpc::Security security;
  Proxy proxy;
  MetricsListenerOptions metrics;
  AddSecurityFlags(command, security);
  AddIslandCaFlag(command, security);
  AddProxyFlag(command, proxy);
  AddMetricsFlags(command, metrics);
  EXPECT_EQ(command
                .Parse({"--tls-cert", "a", "--tls-key", "b", "--tls-ca", "c",
                        "--tls-island-ca", "d", "--insecure", "--proxy",
                        "http://10.0.0.1:3128", "--metrics-listen", "0",
                        "--metrics-port-file", "e"})
                .error,
            "");
  EXPECT_EQ(security.tls.cert, "a");
  EXPECT_EQ(security.tls.key, "b");
  EXPECT_EQ(security.tls.ca, "c");
  EXPECT_EQ(security.tls.island_ca, "d");
  EXPECT_TRUE(security.insecure);
  EXPECT_TRUE(proxy.Serves("example.org"));
  EXPECT_EQ(metrics.address, "0");
  EXPECT_EQ(metrics.port_file, "e");
}

TEST(ProgramFlagsTest, ADirectoryStandsForTheFilesWithoutAFlag) {
  Command command("test", "");
  rpc::Security security;
  AddSecurityFlags(command, security);
  AddIslandCaFlag(command, security);
  EXPECT_EQ(
      command.Parse({"--tls-key", "elsewhere.key", "--tls-dir", "d"}).error,
      "");
  EXPECT_EQ(security.tls.dir, "d");
  EXPECT_EQ(security.tls.cert, "d/tls.crt");
  EXPECT_EQ(security.tls.key, "elsewhere.key");
  EXPECT_EQ(security.tls.ca, "d/ca.crt");
}

TEST(ProgramFlagsTest, AMalformedProxyIsAWrongCommandLine) {
  Command command("test", "");
  Proxy proxy;
  AddProxyFlag(command, proxy);
  EXPECT_THAT(command.Parse({"--proxy", "ftp://x"}).error,
              HasSubstr("--proxy: "));
}

TEST(ProgramFlagsTest, TrustedProxiesMayBeRepeated) {
  Command command("test", "");
  std::vector<Network> networks;
  AddTrustedProxyFlag(command, networks);
  EXPECT_EQ(command
                .Parse({"--trusted-proxy", "10.0.0.0/8", "--trusted-proxy",
                        "fd00::/8"})
                .error,
            "");
  ASSERT_EQ(networks.size(), 2u);
  EXPECT_TRUE(networks[0].Contains("\x0a\x01\x02\x03"));
  EXPECT_EQ(networks[1].bit_count, 8);
}

TEST(ProgramFlagsTest, ATrustedProxyIsANetwork) {
  Command command("test", "");
  std::vector<Network> networks;
  AddTrustedProxyFlag(command, networks);
  EXPECT_THAT(command.Parse({"--trusted-proxy", "lb.example.org"}).error,
              HasSubstr("--trusted-proxy: "));
}

}  // namespace
}  // namespace atl::flags
