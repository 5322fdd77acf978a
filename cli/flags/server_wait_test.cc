#include "cli/flags/server_wait.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/rpc/listener.h"
#include "base/sync/mutex.h"
#include "coordinator/client/client.h"
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
  const server::TransferWait waiting = {absl::Seconds(2), 1,
                                   absl::UnavailableError("refused")};
  EXPECT_EQ(
      DescribeWaiting(waiting, Routes("127.0.0.1:7401"), absl::Minutes(1)),
      "waiting for server s1 at 127.0.0.1:7401, at most 1m: refused "
      "(--patience; Ctrl-C stops it)");
}

TEST(ServerWaitTest, TellsOneThatIsAwayFromOneThatIsSilent) {
  const server::TransferWait silent = {absl::Seconds(2), 1, absl::OkStatus()};
  EXPECT_EQ(DescribeWaiting(silent, Routes(""), absl::Seconds(5)),
            "waiting for server s1, at most 5s: it is away (--patience; Ctrl-C "
            "stops it)");
  EXPECT_EQ(DescribeWaiting(silent, Routes("h:1"), absl::Seconds(5)),
            "waiting for server s1 at h:1, at most 5s: it does not answer "
            "(--patience; Ctrl-C stops it)");
  // Routes without server names.
  EXPECT_EQ(DescribeWaiting(silent, {}, absl::Seconds(5)),
            "waiting for the server of shard 1, at most 5s: it does not answer "
            "(--patience; Ctrl-C stops it)");
}

TEST(ServerWaitTest, SaysWhyInAPersonsWords) {
  const server::TransferWait waiting = {
      absl::Seconds(3), 1,
      absl::UnavailableError("shard 1 at s1.svc:7401: DNS resolution failed for "
                             "s1.svc:7401: C-ares status is not ARES_SUCCESS")};
  EXPECT_EQ(DescribeWaiting(waiting, Routes("s1.svc:7401"), absl::Minutes(1)),
            "waiting for server s1 at s1.svc:7401, at most 1m: the name does "
            "not resolve here (--patience; Ctrl-C stops it)");
}

// Answers every call with `answer`, and counts the calls.
class StateServiceDouble : public v1::TrainingStateService::Service {
 public:
  explicit StateServiceDouble(grpc::Status answer) : answer_(answer) {}

  grpc::Status GetRunState(grpc::ServerContext*, const v1::GetRunStateRequest*,
                           v1::GetRunStateResponse*) override {
    MutexLock lock(&mutex_);
    ++count_;
    changed_.SignalAll();
    return answer_;
  }

  bool WasAsked(int count, absl::Duration timeout) {
    MutexLock lock(&mutex_);
    return changed_.AwaitWithTimeout(&mutex_, timeout,
                                     [&] { return count_ >= count; });
  }

 private:
  const grpc::Status answer_;
  Mutex mutex_;
  CondVar changed_;
  int count_ ABSL_GUARDED_BY(mutex_) = 0;
};

bool AsksAgainAfter(const grpc::Status& answer, absl::Duration timeout) {
  StateServiceDouble states(answer);
  rpc::RpcServer::Spec spec;
  spec.services = {&states};
  const auto server = *rpc::RpcServer::Start(spec);
  coordinator::ClientOptions options;
  options.address = server->address();
  const auto client = *coordinator::MakeClient(options);
  ServerWait wait(
      *client, "run", Routes("h:1"), absl::Minutes(1),
      [](const server::ShardRoutes&) {}, nullptr);
  EXPECT_FALSE(states.WasAsked(1, absl::Milliseconds(50)));
  wait.OnWaiting({absl::Seconds(2), 1, absl::OkStatus()});
  EXPECT_TRUE(states.WasAsked(1, absl::Minutes(2)));
  return states.WasAsked(2, timeout);
}

TEST(ServerWaitTest, AsksAgainWhileItHelps) {
  EXPECT_TRUE(AsksAgainAfter(grpc::Status::OK, absl::Minutes(2)));
  EXPECT_TRUE(AsksAgainAfter({grpc::StatusCode::UNAVAILABLE, "starts"},
                             absl::Minutes(2)));
  EXPECT_FALSE(AsksAgainAfter({grpc::StatusCode::PERMISSION_DENIED, "no"},
                              absl::Seconds(1)));
}

}  // namespace
}  // namespace atl::cli
