#include "base/rpc/health_service.h"

#include <memory>
#include <string>

#include "base/rpc/channel.h"
#include "base/rpc/listener.h"
#include "base/rpc/testing/health.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

using grpc::health::v1::Health;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

class HealthServiceTest : public ::testing::Test {
 protected:
  HealthServiceTest()
      : server_(RpcServer::Start({}).value()),
        channel_(MakeChannel(server_->address(), {}).value()),
        stub_(Health::NewStub(channel_)) {}

  absl::StatusCode Check(const std::string& name) {
    return CheckServing(channel_, absl::Minutes(2), name).code();
  }

  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> Watch(
      grpc::ClientContext& context, const std::string& name) {
    HealthCheckRequest request;
    request.set_service(name);
    return stub_->Watch(&context, request);
  }

  static HealthCheckResponse::ServingStatus Next(
      grpc::ClientReader<HealthCheckResponse>& watch) {
    HealthCheckResponse response;
    EXPECT_TRUE(watch.Read(&response));
    return response.status();
  }

  const std::unique_ptr<RpcServer> server_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<Health::Stub> stub_;
};

TEST_F(HealthServiceTest, AnswersForEachName) {
  EXPECT_EQ(Check(""), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Check("attic"), absl::StatusCode::kNotFound);
  server_->SetServing("attic", true);
  EXPECT_EQ(Check("attic"), absl::StatusCode::kOk);
  EXPECT_EQ(Check(""), absl::StatusCode::kUnavailable);
  server_->SetServing(true);
  EXPECT_EQ(Check(""), absl::StatusCode::kOk);
  server_->SetServing(false);
  EXPECT_EQ(Check("attic"), absl::StatusCode::kUnavailable);
}

TEST_F(HealthServiceTest, AWatchIsToldOfEachChange) {
  grpc::ClientContext context, other_context;
  const auto watch = Watch(context, "");
  EXPECT_EQ(Next(*watch), HealthCheckResponse::NOT_SERVING);
  const auto other = Watch(other_context, "attic");
  EXPECT_EQ(Next(*other), HealthCheckResponse::SERVICE_UNKNOWN);
  server_->SetServing(true);
  EXPECT_EQ(Next(*watch), HealthCheckResponse::SERVING);
  server_->SetServing("attic", true);
  EXPECT_EQ(Next(*other), HealthCheckResponse::SERVING);
  other_context.TryCancel();
  EXPECT_EQ(other->Finish().error_code(), grpc::StatusCode::CANCELLED);
  server_->SetServing(false);
  EXPECT_EQ(Next(*watch), HealthCheckResponse::NOT_SERVING);
  server_->Stop();
  EXPECT_FALSE(watch->Finish().ok());
}

}  // namespace
}  // namespace atl::rpc
