// Tests the client against a scripted service on loopback.

#include "coordinator/client/data_url_client.h"

#include <memory>
#include <stop_token>
#include <string>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "atoll/v1/island_service.grpc.pb.h"
#include "base/rpc/channel.h"
#include "base/rpc/listener.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

// Signs every path but "silent".
class SigningDouble : public v1::IslandService::Service {
 public:
  grpc::Status SignDataUrls(grpc::ServerContext* context,
                            const v1::SignDataUrlsRequest* request,
                            v1::SignDataUrlsResponse* response) override {
    if (request->paths(0) == "silent") {
      stopping.request_stop();
      while (!context->IsCancelled()) {
        never.WaitForNotificationWithTimeout(absl::Milliseconds(5));
      }
    }
    response->add_urls()->set_url("https://b.example/" + request->run_id() +
                                  "/" + request->paths(0));
    return grpc::Status::OK;
  }

  std::stop_source stopping;
  absl::Notification never;
};

class DataUrlClientTest : public ::testing::Test {
 protected:
  DataUrlClientTest() {
    rpc::RpcServer::Spec spec;
    spec.services = {&service_};
    server_ = *rpc::RpcServer::Start(spec);
  }

  absl::StatusOr<std::string> Sign(const std::string& path) {
    return SignDataUrl(server_->address(), rpc::ChannelOptions(), "r", path,
                       service_.stopping.get_token());
  }

  SigningDouble service_;
  std::unique_ptr<rpc::RpcServer> server_;
};

TEST_F(DataUrlClientTest, TheAnswersUrlIsReturned) {
  EXPECT_EQ(*Sign("a.bin"), "https://b.example/r/a.bin");
}

// Without it the call's deadline would end the call.
TEST_F(DataUrlClientTest, AStopEndsACallThatWaits) {
  EXPECT_EQ(Sign("silent").status(), absl::CancelledError("stopped"));
}

}  // namespace
}  // namespace atl::coordinator
