#include "coordinator/service/listeners.h"

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "atoll/v1/island_service.grpc.pb.h"
#include "atoll/v1/run_service.grpc.pb.h"
#include "atoll/v1/server_service.grpc.pb.h"
#include "atoll/v1/training_state_service.grpc.pb.h"
#include "base/host_port/host_port.h"
#include "base/net/port_watch.h"
#include "base/rpc/testing/health.h"
#include "base/time/clock.h"
#include "coordinator/service/event_loop.h"
#include "coordinator/store/testing/memory_store.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class ListenersTest : public testing::Test {
 protected:
  ListenersTest() {
    EventLoop::Spec spec;
    spec.store = &store_;
    spec.clock = &SystemClock();
    loop_ = *EventLoop::Start(spec);
  }
  ~ListenersTest() override { loop_->Stop(); }

  // The code of an empty call to each service at `address`. Any code but
  // UNIMPLEMENTED means that the service is served.
  static std::map<std::string, bool> ServedAt(const std::string& address) {
    const auto channel =
        grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
    std::map<std::string, bool> served;
    auto call =
        [&](const std::string& name,
            const std::function<grpc::Status(grpc::ClientContext*)>& method) {
          grpc::ClientContext context;
          context.set_wait_for_ready(true);
          context.set_deadline(std::chrono::system_clock::now() +
                               std::chrono::seconds(30));
          served[name] =
              method(&context).error_code() != grpc::StatusCode::UNIMPLEMENTED;
        };
    call("island", [&](grpc::ClientContext* context) {
      v1::HeartbeatResponse response;
      return v1::IslandService::NewStub(channel)->Heartbeat(context, {},
                                                            &response);
    });
    call("query", [&](grpc::ClientContext* context) {
      v1::GetRunStateResponse response;
      return v1::TrainingStateService::NewStub(channel)->GetRunState(
          context, {}, &response);
    });
    call("run", [&](grpc::ClientContext* context) {
      v1::GetRunResponse response;
      return v1::RunService::NewStub(channel)->GetRun(context, {}, &response);
    });
    call("server", [&](grpc::ClientContext* context) {
      v1::ReportShardsResponse response;
      return v1::ServerService::NewStub(channel)->ReportShards(context, {},
                                                               &response);
    });
    return served;
  }

  using Served = std::map<std::string, bool>;

  MemoryLogStore store_;
  std::unique_ptr<EventLoop> loop_;
};

TEST_F(ListenersTest, AllServicesShareOnePortByDefault) {
  auto listeners = Listeners::Start(*loop_, Listeners::Spec());
  ASSERT_TRUE(listeners.ok()) << listeners.status();
  ASSERT_EQ((*listeners)->ports().size(), 1);
  EXPECT_EQ(
      ServedAt((*listeners)->ports()[0].address),
      (Served{
          {"island", true}, {"query", true}, {"run", true}, {"server", true}}));
}

TEST_F(ListenersTest, AServiceWithItsOwnAddressIsServedThereAlone) {
  Listeners::Spec spec;
  spec.island = "127.0.0.1:0";
  spec.query = "127.0.0.1:0";
  spec.server = "127.0.0.1:0";
  auto listeners = Listeners::Start(*loop_, spec);
  ASSERT_TRUE(listeners.ok()) << listeners.status();
  std::map<std::string, Served> served;
  for (const Listeners::Port& port : (*listeners)->ports()) {
    served[port.name] = ServedAt(port.address);
  }
  const Served main = {
      {"island", false}, {"query", false}, {"run", true}, {"server", false}};
  const Served island = {
      {"island", true}, {"query", false}, {"run", true}, {"server", false}};
  const Served query = {
      {"island", false}, {"query", true}, {"run", true}, {"server", false}};
  const Served server = {
      {"island", false}, {"query", false}, {"run", true}, {"server", true}};
  EXPECT_THAT(served, ElementsAre(testing::Pair("island", island),
                                  testing::Pair("main", main),
                                  testing::Pair("query", query),
                                  testing::Pair("server", server)));
}

TEST_F(ListenersTest, NamesThePortThatMayNotBeOpened) {
  Listeners::Spec spec;
  spec.query = "0.0.0.0:0";
  const absl::Status status = Listeners::Check(spec);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("query port"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("--insecure"));
  EXPECT_EQ(Listeners::Start(*loop_, spec).status().code(),
            absl::StatusCode::kInvalidArgument);
  spec.security.insecure = true;
  EXPECT_TRUE(Listeners::Check(spec).ok());
}

class HealthTest : public testing::Test {
 protected:
  HealthTest() {
    EventLoop::Spec spec;
    spec.store = &store_;
    spec.clock = &SystemClock();
    loop_ = *EventLoop::Start(spec);
    listeners_ = *Listeners::Start(*loop_, Listeners::Spec());
    channel_ = grpc::CreateChannel(listeners_->ports()[0].address,
                                   grpc::InsecureChannelCredentials());
  }

  bool Serves() const {
    return rpc::CheckServing(channel_, absl::Seconds(30)).ok();
  }
  std::string WaitsFor() const {
    return std::string(metrics_.ready().message());
  }

  MemoryLogStore store_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Listeners> listeners_;
  std::shared_ptr<grpc::Channel> channel_;
  Metrics metrics_;
};

TEST_F(HealthTest, IsReadyOnceItsPortsAreOpen) {
  Health health(metrics_);
  EXPECT_THAT(WaitsFor(), HasSubstr("recovering"));
  EXPECT_FALSE(Serves());
  health.SetListeners(listeners_.get());
  EXPECT_TRUE(metrics_.ready().ok());
  EXPECT_TRUE(Serves());
}

TEST_F(HealthTest, AWatchSeesThatItsPortsAnswer) {
  const auto address = ParseHostPort(listeners_->ports()[0].address);
  const absl::Status status = net::CheckPort(
      *address, /*has_tls=*/false, {SystemClock().Now() + absl::Minutes(2)});
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(HealthTest, IsNotReadyWhileItRefusesChanges) {
  Health health(metrics_);
  health.SetListeners(listeners_.get());
  health.SetRefusal(absl::UnavailableError("the disk fails"));
  EXPECT_THAT(WaitsFor(), HasSubstr("disk"));
  EXPECT_FALSE(Serves());
  health.SetRefusal(absl::OkStatus());
  EXPECT_TRUE(metrics_.ready().ok());
  EXPECT_TRUE(Serves());
}

TEST_F(HealthTest, StaysNotReadyOnceItStops) {
  Health health(metrics_);
  health.SetListeners(listeners_.get());
  health.SetStopping();
  health.SetRefusal(absl::OkStatus());
  EXPECT_THAT(WaitsFor(), HasSubstr("stopping"));
  EXPECT_FALSE(Serves());
}

}  // namespace
}  // namespace atl::coordinator
