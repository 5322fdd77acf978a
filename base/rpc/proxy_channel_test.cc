// Channels through a proxy.

#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/host_port/proxy.h"
#include "base/host_port/testing/connect_proxy.h"
#include "base/random_id/random_id.h"
#include "base/rpc/channel.h"
#include "base/rpc/listener.h"
#include "base/rpc/testing/health.h"
#include "base/rpc/testing/test_certificates.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

using ::testing::HasSubstr;

// A coordinator at far.invalid, a name that this machine cannot look up.
class ProxyChannelTest : public ::testing::Test {
 protected:
  ProxyChannelTest() {
    std::filesystem::create_directories(directory_);
    authority_ = std::make_unique<TestAuthority>(directory_);
    CertificateSpec spec = TestAuthority::DefaultSpec("atoll:coordinator:c");
    spec.hosts = {"far.invalid"};
    RpcServer::Spec server;
    server.listener.tls = authority_->Issue(spec);
    server_ = RpcServer::Start(server).value();
    server_->SetServing(true);
    options_.tls = authority_->Issue("atoll:operator:o");
  }
  ~ProxyChannelTest() override { std::filesystem::remove_all(directory_); }

  absl::Status CallAt(const std::string& host, int port) {
    const auto channel = MakeChannel(absl::StrCat(host, ":", port), options_);
    if (!channel.ok()) return channel.status();
    return CheckServing(*channel, absl::Minutes(1));
  }

  absl::Status Call(const std::string& host) {
    return CallAt(host, server_->port());
  }

  const std::string directory_ =
      absl::StrCat(::testing::TempDir(), "/", RandomId());
  std::unique_ptr<TestAuthority> authority_;
  std::unique_ptr<RpcServer> server_;
  ChannelOptions options_;
};

TEST_F(ProxyChannelTest, TheProxyFindsTheHostAndTlsChecksIt) {
  ConnectProxy proxy;
  options_.proxy = ParseProxy(proxy.url()).value();
  const absl::Status status = Call("far.invalid");
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(proxy.tunnel_count(), 1);
  // The same server under a name that is not in its certificate.
  EXPECT_THAT(std::string(Call("other.invalid").message()),
              HasSubstr("other.invalid"));
}

TEST_F(ProxyChannelTest, LoopbackIsDialledDirectly) {
  ConnectProxy proxy;
  options_.proxy = ParseProxy(proxy.url()).value();
  EXPECT_THAT(std::string(Call("127.0.0.1").message()), HasSubstr("127.0.0.1"));
  EXPECT_EQ(proxy.tunnel_count(), 0);
}

TEST_F(ProxyChannelTest, CredentialsAreSentAndTheirLackIsNamed) {
  ConnectProxy proxy("Basic bWU6aGlkZGVu");
  options_.proxy = ParseProxy(proxy.url()).value();
  const absl::Status refused = Call("far.invalid");
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr(absl::StrCat("the proxy ", options_.proxy.name(),
                                     " answered 407 to CONNECT: it wants a "
                                     "user name and a password")));
  options_.proxy.credentials = "me:hidden";
  const absl::Status status = Call("far.invalid");
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(ProxyChannelTest, AProxyWithAFaultFailsOnlyWhereItIsDialled) {
  options_.proxy.fault = "a socks proxy";
  options_.proxy.no_proxy = "near.invalid";
  const absl::Status status = Call("far.invalid");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "a socks proxy");
  EXPECT_TRUE(MakeChannel("near.invalid:1", options_).ok());
  EXPECT_TRUE(MakeChannel("127.0.0.1:1", options_).ok());
}

TEST_F(ProxyChannelTest, ARefusalNamesProxyAndAnswer) {
  ConnectProxy proxy;
  options_.proxy = ParseProxy(proxy.url()).value();
  // Nothing listens at port 1.
  const absl::Status status = CallAt("far.invalid", 1);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("the proxy ", options_.proxy.name(),
                                     " answered 502 to CONNECT")));
}

}  // namespace
}  // namespace atl::rpc
