// Tests the client against a scripted service on loopback.

#include "coordinator/client/enrolment_client.h"

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "atoll/v1/enrolment_service.grpc.pb.h"
#include "base/rpc/listener.h"
#include "base/rpc/status.h"
#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

// Answers one field of each request in its response.
class EnrolmentServiceDouble : public v1::EnrolmentService::Service {
 public:
  grpc::Status AnnounceGate(grpc::ServerContext* context,
                            const v1::AnnounceGateRequest*,
                            v1::AnnounceGateResponse*) override {
    // Held until the caller has gone.
    if (silent) {
      while (!context->IsCancelled()) {
        entered.WaitForNotificationWithTimeout(absl::Milliseconds(5));
      }
    }
    return grpc::Status::OK;
  }
  grpc::Status ConsumeToken(grpc::ServerContext*,
                            const v1::ConsumeTokenRequest* request,
                            v1::ConsumeTokenResponse* response) override {
    response->add_server_addresses(request->token_id());
    return grpc::Status::OK;
  }
  grpc::Status CheckToken(grpc::ServerContext*,
                          const v1::CheckTokenRequest* request,
                          v1::CheckTokenResponse* response) override {
    response->mutable_token()->set_token_id(request->token_id());
    return grpc::Status::OK;
  }
  grpc::Status RenewCertificate(
      grpc::ServerContext*, const v1::RenewCertificateRequest* request,
      v1::RenewCertificateResponse* response) override {
    response->add_server_addresses(request->identity().name());
    return grpc::Status::OK;
  }
  grpc::Status CreateToken(grpc::ServerContext*,
                           const v1::CreateTokenRequest* request,
                           v1::CreateTokenResponse* response) override {
    *response->mutable_token() = request->token();
    return grpc::Status::OK;
  }
  grpc::Status ListTokens(grpc::ServerContext*,
                          const v1::ListTokensRequest* request,
                          v1::ListTokensResponse* response) override {
    response->add_tokens()->set_run_id(request->run_id());
    return grpc::Status::OK;
  }
  grpc::Status RevokeToken(grpc::ServerContext*,
                           const v1::RevokeTokenRequest* request,
                           v1::RevokeTokenResponse* response) override {
    response->mutable_token()->set_token_id(request->token_id());
    return grpc::Status::OK;
  }
  grpc::Status RevokeIsland(grpc::ServerContext*,
                            const v1::RevokeIslandRequest*,
                            v1::RevokeIslandResponse*) override {
    return rpc::ToGrpc(Refuse(absl::StatusCode::kNotFound, "NO_SUCH_ISLAND",
                              "it has never joined"));
  }
  grpc::Status ListAuditRecords(
      grpc::ServerContext*, const v1::ListAuditRecordsRequest* request,
      v1::ListAuditRecordsResponse* response) override {
    response->add_records()->set_number(request->after_number() + 1);
    return grpc::Status::OK;
  }

  bool silent = false;
  absl::Notification entered;  // Never notified.
};

class EnrolmentClientTest : public ::testing::Test {
 protected:
  EnrolmentClientTest() {
    rpc::RpcServer::Spec spec;
    spec.services = {&service_};
    server_ = *rpc::RpcServer::Start(spec);
    options_.address = server_->address();
    client_ = *MakeEnrolmentClient(options_);
  }

  EnrolmentServiceDouble service_;
  std::unique_ptr<rpc::RpcServer> server_;
  EnrolmentClientOptions options_;
  std::unique_ptr<EnrolmentClient> client_;
};

TEST_F(EnrolmentClientTest, EachMethodCallsItsRpc) {
  EXPECT_TRUE(client_->AnnounceGate({}).ok());
  v1::ConsumeTokenRequest consume;
  consume.set_token_id("a");
  EXPECT_EQ(client_->ConsumeToken(consume)->server_addresses(0), "a");
  v1::CheckTokenRequest check;
  check.set_token_id("b");
  EXPECT_EQ(client_->CheckToken(check)->token().token_id(), "b");
  v1::RenewCertificateRequest renew;
  renew.mutable_identity()->set_name("c");
  EXPECT_EQ(client_->RenewCertificate(renew)->server_addresses(0), "c");
  v1::CreateTokenRequest create;
  create.mutable_token()->set_token_id("d");
  EXPECT_EQ(client_->CreateToken(create)->token().token_id(), "d");
  v1::ListTokensRequest list;
  list.set_run_id("e");
  EXPECT_EQ(client_->ListTokens(list)->tokens(0).run_id(), "e");
  v1::RevokeTokenRequest revoke;
  revoke.set_token_id("f");
  EXPECT_EQ(client_->RevokeToken(revoke)->token().token_id(), "f");
  v1::ListAuditRecordsRequest audit;
  audit.set_after_number(6);
  EXPECT_EQ(client_->ListAuditRecords(audit)->records(0).number(), 7);
}

TEST_F(EnrolmentClientTest, AnErrorKeepsItsReason) {
  const absl::Status status = client_->RevokeIsland({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(GetReason(status)->reason, "NO_SUCH_ISLAND");
}

TEST_F(EnrolmentClientTest, NamesACoordinatorThatIsAway) {
  server_.reset();
  const absl::Status status = client_->AnnounceGate({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(status.message(), options_.address)) << status;
}

TEST_F(EnrolmentClientTest, ACallThatWaitsForAConnectionDoesNotFailAtOnce) {
  server_.reset();
  options_.waits_for_connection = true;
  options_.timeout = absl::Milliseconds(50);
  const absl::Status status =
      (*MakeEnrolmentClient(options_))->AnnounceGate({}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(absl::StrContains(status.message(), options_.address)) << status;
}

TEST_F(EnrolmentClientTest, ACallEndsAtItsDeadline) {
  service_.silent = true;
  options_.timeout = absl::Milliseconds(50);
  EXPECT_EQ((*MakeEnrolmentClient(options_))->AnnounceGate({}).status().code(),
            absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace atl::coordinator
