// Plans and reports over loopback, between coordinator and server client.

#include "coordinator/service/latest_writer.h"

#include <cstddef>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "atoll/v1/server_service.grpc.pb.h"
#include "base/rpc/listener.h"
#include "coordinator/client/plan_parts.h"
#include "coordinator/client/plan_position.h"
#include "coordinator/client/server_control_client.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

constexpr absl::Duration kPatience = absl::Minutes(2);
// Together they exceed two control messages.
constexpr int kRunCount = 3000;
constexpr size_t kRunBytes = 4000;

class Service : public v1::ServerService::CallbackService {
 public:
  using Writer = LatestWriter<v1::WatchServerPlanResponse, v1::ServerPlan>;

  grpc::ServerUnaryReactor* RegisterServer(
      grpc::CallbackServerContext* context, const v1::RegisterServerRequest*,
      v1::RegisterServerResponse*) override {
    return Done(context);
  }
  grpc::ServerUnaryReactor* ReportShards(
      grpc::CallbackServerContext* context,
      const v1::ReportShardsRequest* request,
      v1::ReportShardsResponse*) override {
    std::lock_guard<std::mutex> lock(mutex);
    shard_count += request->shards_size();
    return Done(context);
  }
  grpc::ServerWriteReactor<v1::WatchServerPlanResponse>* WatchServerPlan(
      grpc::CallbackServerContext*,
      const v1::WatchServerPlanRequest*) override {
    const std::shared_ptr<Writer> made = Writer::Make(
        [](v1::ServerPlan plan) { return CutPlan(std::move(plan)); },
        MergePlans);
    std::lock_guard<std::mutex> lock(mutex);
    writer = made;
    writer->Offer(plan);
    return made.get();
  }

  std::mutex mutex;
  std::shared_ptr<Writer> writer;
  v1::ServerPlan plan;
  int shard_count = 0;

 private:
  static grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
};

class LatestWriterTest : public testing::Test {
 protected:
  LatestWriterTest() {
    service_.plan.set_coordinator_epoch(1);
    service_.plan.set_revision(1);
    for (int i = 0; i < kRunCount; ++i) {
      service_.plan.add_runs()->set_run_id(std::string(kRunBytes, 'r'));
    }
    rpc::RpcServer::Spec spec;
    spec.services = {&service_};
    server_ = *rpc::RpcServer::Start(spec);
    client_ = *MakeServerControlClient(server_->address(), {});
    EXPECT_TRUE(client_->RegisterServer({}).ok());
  }
  ~LatestWriterTest() override {
    client_.reset();
    server_->Stop();
  }

  Service service_;
  std::unique_ptr<rpc::RpcServer> server_;
  std::unique_ptr<ServerControlClient> client_;
};

TEST_F(LatestWriterTest, APlanOfManyRunsComesWhole) {
  const auto plan = client_->WaitForPlan({}, kPatience, std::stop_token());
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->runs_size(), kRunCount);
  EXPECT_EQ(plan->SerializeAsString(), service_.plan.SerializeAsString());
  v1::ServerPlan newer;
  newer.set_coordinator_epoch(1);
  newer.set_revision(2);
  {
    std::lock_guard<std::mutex> lock(service_.mutex);
    service_.writer->Offer(newer);
  }
  const auto next =
      client_->WaitForPlan(ToPosition(*plan), kPatience, std::stop_token());
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(next->revision(), 2);
  EXPECT_EQ(next->runs_size(), 0);
}

TEST_F(LatestWriterTest, AReportOfManyRunsIsTaken) {
  v1::ReportShardsRequest report;
  for (int i = 0; i < kRunCount; ++i) {
    report.add_shards()->set_fault(std::string(kRunBytes, 'f'));
  }
  const auto answer = client_->ReportShards(report);
  ASSERT_TRUE(answer.ok()) << answer.status();
  std::lock_guard<std::mutex> lock(service_.mutex);
  EXPECT_EQ(service_.shard_count, kRunCount);
}

}  // namespace
}  // namespace atl::coordinator
