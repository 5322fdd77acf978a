#include "cli/commands/server_wait.h"

#include <string>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

server::ShardRoutes Routes(const std::string& address) {
  server::ShardRoutes routes;
  for (int i = 0; i < 2; ++i) {
    v1::ShardPlacement& shard = routes.shards.emplace_back();
    shard.set_shard(i);
    shard.set_server_id(i == 0 ? "s0" : "s1");
    shard.set_address(i == 0 ? "127.0.0.1:7400" : address);
  }
  return routes;
}

TEST(ServerWaitTest, NamesTheServerTheBoundAndHowToEndIt) {
  const server::Waiting waiting = {absl::Seconds(2), 1,
                                   absl::UnavailableError("refused")};
  EXPECT_EQ(DescribeWaiting(waiting, Routes("127.0.0.1:7401"),
                            absl::Minutes(1)),
            "waits for server s1 at 127.0.0.1:7401, at most 1m: refused "
            "(--patience; Ctrl-C ends it)");
}

TEST(ServerWaitTest, TellsOneThatIsAwayFromOneThatIsSilent) {
  const server::Waiting silent = {absl::Seconds(2), 1, absl::OkStatus()};
  EXPECT_EQ(DescribeWaiting(silent, Routes(""), absl::Seconds(5)),
            "waits for server s1, at most 5s: it is away (--patience; Ctrl-C "
            "ends it)");
  EXPECT_EQ(DescribeWaiting(silent, Routes("h:1"), absl::Seconds(5)),
            "waits for server s1 at h:1, at most 5s: it does not answer "
            "(--patience; Ctrl-C ends it)");
  // Of a plan without names.
  EXPECT_EQ(DescribeWaiting(silent, {}, absl::Seconds(5)),
            "waits for the server of shard 1, at most 5s: it does not answer "
            "(--patience; Ctrl-C ends it)");
}

}  // namespace
}  // namespace atl::cli
