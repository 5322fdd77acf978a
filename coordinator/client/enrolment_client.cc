#include "coordinator/client/enrolment_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "atoll/v1/enrolment_service.grpc.pb.h"
#include "base/rpc/call.h"
#include "base/status/status_macros.h"
#include "grpcpp/channel.h"

namespace atl::coordinator {
namespace {

using Stub = v1::EnrolmentService::Stub;

class GrpcEnrolmentClient : public EnrolmentClient {
 public:
  GrpcEnrolmentClient(const EnrolmentClientOptions& options,
                      std::unique_ptr<rpc::Dialer> dialer)
      : options_(options), dialer_(std::move(dialer)) {}

  absl::StatusOr<v1::AnnounceGateResponse> AnnounceGate(
      const v1::AnnounceGateRequest& request) override {
    return Call(&Stub::AnnounceGate, request);
  }
  absl::StatusOr<v1::ConsumeTokenResponse> ConsumeToken(
      const v1::ConsumeTokenRequest& request) override {
    return Call(&Stub::ConsumeToken, request);
  }
  absl::StatusOr<v1::CheckTokenResponse> CheckToken(
      const v1::CheckTokenRequest& request) override {
    return Call(&Stub::CheckToken, request);
  }
  absl::StatusOr<v1::RenewCertificateResponse> RenewCertificate(
      const v1::RenewCertificateRequest& request) override {
    return Call(&Stub::RenewCertificate, request);
  }
  absl::StatusOr<v1::CreateTokenResponse> CreateToken(
      const v1::CreateTokenRequest& request) override {
    return Call(&Stub::CreateToken, request);
  }
  absl::StatusOr<v1::ListTokensResponse> ListTokens(
      const v1::ListTokensRequest& request) override {
    return Call(&Stub::ListTokens, request);
  }
  absl::StatusOr<v1::RevokeTokenResponse> RevokeToken(
      const v1::RevokeTokenRequest& request) override {
    return Call(&Stub::RevokeToken, request);
  }
  absl::StatusOr<v1::RevokeIslandResponse> RevokeIsland(
      const v1::RevokeIslandRequest& request) override {
    return Call(&Stub::RevokeIsland, request);
  }
  absl::StatusOr<v1::ListAuditRecordsResponse> ListAuditRecords(
      const v1::ListAuditRecordsRequest& request) override {
    return Call(&Stub::ListAuditRecords, request);
  }

 private:
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(
      grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                   Response*),
      const Request& request) {
    rpc::CallOptions call;
    call.timeout = options_.timeout;
    call.waits_for_connection = options_.waits_for_connection;
    call.peer = absl::StrCat("coordinator ", options_.address);
    call.stop = options_.stop;
    return rpc::Call(*v1::EnrolmentService::NewStub(dialer_->channel()), method,
                     request, call);
  }

  const EnrolmentClientOptions options_;
  const std::unique_ptr<rpc::Dialer> dialer_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<EnrolmentClient>> MakeEnrolmentClient(
    const EnrolmentClientOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<rpc::Dialer> dialer,
                   rpc::Dialer::Make(options.address, options.channel));
  return std::make_unique<GrpcEnrolmentClient>(options, std::move(dialer));
}

}  // namespace atl::coordinator
