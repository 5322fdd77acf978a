#include "coordinator/service/health.h"

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/rpc/testing/health.h"
#include "base/time/clock.h"
#include "coordinator/service/event_loop.h"
#include "coordinator/store/testing/memory_store.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

using ::testing::HasSubstr;

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

TEST_F(HealthTest, IsNotReadyWhileTheStoreFails) {
  Health health(metrics_);
  health.SetListeners(listeners_.get());
  health.SetStoring(false);
  EXPECT_THAT(WaitsFor(), HasSubstr("disk"));
  EXPECT_FALSE(Serves());
  health.SetStoring(true);
  EXPECT_TRUE(metrics_.ready().ok());
  EXPECT_TRUE(Serves());
}

TEST_F(HealthTest, StaysNotReadyOnceItStops) {
  Health health(metrics_);
  health.SetListeners(listeners_.get());
  health.SetStopping();
  health.SetStoring(true);
  EXPECT_THAT(WaitsFor(), HasSubstr("stopping"));
  EXPECT_FALSE(Serves());
}

}  // namespace
}  // namespace atl::coordinator
