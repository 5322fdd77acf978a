// The calls of EnrolmentService, one method per call: a gate's and an
// operator's.
//
// Every call has a deadline and is made once. Errors are those of the service;
// UNAVAILABLE or DEADLINE_EXCEEDED, with the address, if the coordinator is
// away; and CANCELLED if the client was stopped.
//
// Thread-safe.

#pragma once

#include <memory>
#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "atoll/v1/enrolment_service.pb.h"
#include "base/rpc/channel.h"

namespace atl::coordinator {

class EnrolmentClient {
 public:
  virtual ~EnrolmentClient() = default;

  // For gates.
  virtual absl::StatusOr<v1::AnnounceGateResponse> AnnounceGate(
      const v1::AnnounceGateRequest& request) = 0;
  virtual absl::StatusOr<v1::ConsumeTokenResponse> ConsumeToken(
      const v1::ConsumeTokenRequest& request) = 0;
  virtual absl::StatusOr<v1::CheckTokenResponse> CheckToken(
      const v1::CheckTokenRequest& request) = 0;
  virtual absl::StatusOr<v1::RenewCertificateResponse> RenewCertificate(
      const v1::RenewCertificateRequest& request) = 0;

  // For operators.
  virtual absl::StatusOr<v1::CreateTokenResponse> CreateToken(
      const v1::CreateTokenRequest& request) = 0;
  virtual absl::StatusOr<v1::ListTokensResponse> ListTokens(
      const v1::ListTokensRequest& request) = 0;
  virtual absl::StatusOr<v1::RevokeTokenResponse> RevokeToken(
      const v1::RevokeTokenRequest& request) = 0;
  virtual absl::StatusOr<v1::RevokeIslandResponse> RevokeIsland(
      const v1::RevokeIslandRequest& request) = 0;
  virtual absl::StatusOr<v1::ListAuditRecordsResponse> ListAuditRecords(
      const v1::ListAuditRecordsRequest& request) = 0;
};

struct EnrolmentClientOptions {
  std::string address;                         // host:port
  rpc::ChannelOptions channel;                 // kControl.
  absl::Duration timeout = absl::Seconds(10);  // Of every call.
  // Without a connection a call waits for one, instead of failing at once.
  // gRPC connects only during calls, so a client with few calls needs it.
  bool waits_for_connection = false;
  std::stop_token stop;  // Once requested, calls end at once.
};

// Returns a client with its own connection, made at the first call.
//
// Errors as rpc::MakeChannel.
absl::StatusOr<std::unique_ptr<EnrolmentClient>> MakeEnrolmentClient(
    const EnrolmentClientOptions& options);

}  // namespace atl::coordinator
