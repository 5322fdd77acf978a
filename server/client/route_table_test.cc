#include "server/client/route_table.h"

#include "absl/strings/match.h"
#include "base/rpc/listener.h"
#include "base/rpc/testing/health.h"
#include "base/rpc/testing/test_certificates.h"
#include "gtest/gtest.h"

namespace atl::server {
namespace {

class RouteTableTest : public ::testing::Test {
 protected:
  RouteTableTest() : authority_(::testing::TempDir()) {}

  // Asks a listener with the certificate `name` for its health, as an island.
  absl::Status Ask(const std::string& name) {
    rpc::RpcServer::Spec spec;
    spec.listener.tls = authority_.Issue(name);
    const auto listener = rpc::RpcServer::Start(spec);
    if (!listener.ok()) return listener.status();
    (*listener)->SetServing(true);
    rpc::ChannelOptions options;
    options.tls = authority_.Issue("atoll:island:x");
    RouteTable table(options);
    ShardRoutes routes;
    routes.shards.emplace_back().set_address((*listener)->address());
    table.Set(routes);
    const absl::StatusOr<Route> route = table.Find(0, 0);
    if (!route.ok()) return route.status();
    return rpc::CheckServing(route->channel, absl::Seconds(30));
  }

  rpc::TestAuthority authority_;
};

TEST_F(RouteTableTest, ReachesServersAndNobodyElse) {
  const absl::Status server = Ask("atoll:server:s");
  EXPECT_TRUE(server.ok()) << server;
  for (const char* name : {"atoll:island:y", "atoll:coordinator:c"}) {
    const absl::Status other = Ask(name);
    EXPECT_EQ(other.code(), absl::StatusCode::kUnavailable) << other;
    EXPECT_TRUE(absl::StrContains(other.message(), "not a server's")) << other;
  }
}

}  // namespace
}  // namespace atl::server
