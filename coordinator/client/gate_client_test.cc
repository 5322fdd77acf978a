// Tests the client against a scripted gate on loopback.

#include "coordinator/client/gate_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/public_key.h"
#include "base/status/refusal.h"
#include "base/time/clock.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

net::WaitLimits Long() { return {SystemClock().Now() + absl::Minutes(2), -1}; }

v1::GateResponse Answer() {
  v1::GateResponse response;
  response.mutable_token_state()->set_uses_left(7);
  return response;
}

// A root, and a gate that serves one connection in a thread.
class GateClientTest : public ::testing::Test {
 protected:
  GateClientTest()
      : root_(MakeRoot()), listening_(net::Listen({"127.0.0.1", 0}).value()) {
    gate_ = Issue(GateSpec());
    chain_pem_ = gate_.cert_pem + root_.cert_pem;
    options_.address = absl::StrCat(
        "127.0.0.1:", net::LocalAddress(listening_.get()).value().port);
    options_.pin = PinOf(root_);
    options_.timeout = absl::Minutes(2);
    request_.mutable_check()->set_token_id("abc");
  }
  ~GateClientTest() override {
    if (thread_.joinable()) thread_.join();
  }

  rpc::KeyAndCertificate MakeRoot() const {
    return rpc::MakeAuthority("root", now_ - absl::Hours(9),
                              now_ + absl::Hours(9))
        .value();
  }
  static std::string PinOf(const rpc::KeyAndCertificate& root) {
    return rpc::ToPin(rpc::ReadPublicKey(root.cert_pem).value());
  }
  rpc::CertificateSpec GateSpec() const {
    return {.common_name = "atoll:gate:g",
            .hosts = {"127.0.0.1"},
            .server_auth = true,
            .client_auth = true,
            .begin = now_ - absl::Hours(8),
            .end = now_ + absl::Hours(8)};
  }
  rpc::KeyAndCertificate Issue(const rpc::CertificateSpec& spec) const {
    return rpc::IssueCertificate(root_, spec).value();
  }
  // The gate has another certificate, with the same root.
  void Reissue(const rpc::CertificateSpec& spec) {
    gate_ = Issue(spec);
    chain_pem_ = gate_.cert_pem + root_.cert_pem;
  }

  // Accepts a connection and lets `serve` use it.
  void Serve(std::function<void(UniqueFd)> serve) {
    thread_ = std::thread([this, serve = std::move(serve)] {
      EXPECT_TRUE(net::WaitForSocket(listening_.get(), POLLIN, Long()).ok());
      serve(UniqueFd(accept(listening_.get(), nullptr, nullptr)));
    });
  }
  // Answers one request with `answer`.
  void ServeTls(UniqueFd fd, const std::string& answer) {
    const auto stream = rpc::TlsStream::Accept(
        *rpc::TlsContext::MakeServer(chain_pem_, gate_.key_pem).value(),
        std::move(fd), Long());
    accepted_ = stream.status();
    if (!stream.ok()) return;
    received_ = (*stream)->Receive().value_or("");
    shown_chain_pem_ = (*stream)->peer_chain_pem();
    (void)(*stream)->Send(answer);
  }
  void ServeAnswer(const std::string& answer) {
    Serve([this, answer](UniqueFd fd) { ServeTls(std::move(fd), answer); });
  }

  absl::StatusOr<v1::GateResponse> Call() {
    absl::StatusOr<v1::GateResponse> response =
        GateClient::Make(options_).value()->Call(request_);
    if (thread_.joinable()) thread_.join();
    return response;
  }
  // Calls a gate that must be refused before it sees anything.
  absl::Status CallRefused() {
    options_.cert_pem = gate_.cert_pem;
    options_.key_pem = gate_.key_pem;
    ServeAnswer(Answer().SerializeAsString());
    absl::Status status = Call().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
    EXPECT_TRUE(absl::StrContains(accepted_.message(), "alert bad certificate"))
        << accepted_;
    EXPECT_EQ(received_, "");
    return status;
  }

  const absl::Time now_ = absl::Now();
  const rpc::KeyAndCertificate root_;
  rpc::KeyAndCertificate gate_;
  std::string chain_pem_;
  const UniqueFd listening_;
  std::thread thread_;
  // What the gate's thread saw.
  absl::Status accepted_;
  std::string received_;
  std::string shown_chain_pem_;
  GateClientOptions options_;
  v1::GateRequest request_;
};

TEST_F(GateClientTest, ReturnsTheGatesAnswer) {
  ServeAnswer(Answer().SerializeAsString());
  const absl::StatusOr<v1::GateResponse> response = Call();
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->token_state().uses_left(), 7);
  EXPECT_EQ(received_, request_.SerializeAsString());
  EXPECT_EQ(shown_chain_pem_, "");
}

TEST_F(GateClientTest, ShowsTheCertificateToRenew) {
  options_.cert_pem = gate_.cert_pem;
  options_.key_pem = gate_.key_pem;
  ServeAnswer(Answer().SerializeAsString());
  EXPECT_TRUE(Call().ok());
  EXPECT_EQ(shown_chain_pem_, gate_.cert_pem);
}

TEST_F(GateClientTest, AGatesErrorIsAStatusWithItsReason) {
  v1::GateResponse response;
  response.mutable_error()->set_code(7);
  response.mutable_error()->set_reason("TOKEN_USED");
  response.mutable_error()->set_message("no use is left");
  ServeAnswer(response.SerializeAsString());
  const absl::Status status = Call().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(status.message(), "no use is left");
  EXPECT_EQ(GetReason(status)->reason, "TOKEN_USED");
}

TEST_F(GateClientTest, ABusyGateIsAwayForAMoment) {
  v1::GateError error;
  error.set_code(static_cast<int>(absl::StatusCode::kResourceExhausted));
  error.set_reason("TOO_MANY_IDENTITIES");
  EXPECT_FALSE(IsAway(FromGateError(error)));
  error.set_reason("BUSY");
  EXPECT_TRUE(IsAway(FromGateError(error)));
  EXPECT_TRUE(HasReason(FromGateError(error), "BUSY"));
}

TEST_F(GateClientTest, AnUnknownCodeIsInternal) {
  for (const int code : {-1, 0, 17, 1000}) {
    v1::GateError error;
    error.set_code(code);
    EXPECT_EQ(FromGateError(error).code(), absl::StatusCode::kInternal);
  }
}

TEST_F(GateClientTest, AnAnswerOfAnotherKindIsInternal) {
  for (const char* answer : {"", "\xff"}) {
    ServeAnswer(answer);
    EXPECT_EQ(Call().status().code(), absl::StatusCode::kInternal);
  }
}

TEST_F(GateClientTest, AnotherRootIsRefusedBeforeTheRequestIsSent) {
  const std::string seen = options_.pin;
  options_.pin = PinOf(MakeRoot());
  const absl::Status status = CallRefused();
  EXPECT_EQ(status.message(),
            absl::StrCat("the gate at ", options_.address,
                         " shows the root with pin ", seen,
                         ", the join string has ", options_.pin,
                         ": ask whoever sent it for a new one; do not "
                         "continue"));
  EXPECT_EQ(GetReason(status)->reason, "WRONG_PIN");
}

TEST_F(GateClientTest, TheRightRootBehindAStrangersCertificateIsRefused) {
  const rpc::KeyAndCertificate other = MakeRoot();
  gate_ = rpc::IssueCertificate(other, GateSpec()).value();
  // The right root is public; it did not sign this.
  chain_pem_ = gate_.cert_pem + other.cert_pem + root_.cert_pem;
  const absl::Status status = CallRefused();
  EXPECT_TRUE(absl::StrContains(
      status.message(), "the root with the join string's pin did not sign it"))
      << status;
}

TEST_F(GateClientTest, AnotherRoleIsRefused) {
  rpc::CertificateSpec spec = GateSpec();
  spec.common_name = "atoll:coordinator:c";
  Reissue(spec);
  EXPECT_TRUE(absl::StrContains(CallRefused().message(), "not a gate's"));
}

TEST_F(GateClientTest, AnotherHostIsRefused) {
  rpc::CertificateSpec spec = GateSpec();
  spec.hosts = {"gate.example.org"};
  Reissue(spec);
  EXPECT_TRUE(absl::StrContains(CallRefused().message(),
                                "is not for the host 127.0.0.1"));
}

TEST_F(GateClientTest, ACertificateForClientsIsRefused) {
  rpc::CertificateSpec spec = GateSpec();
  spec.server_auth = false;
  Reissue(spec);
  EXPECT_TRUE(absl::StrContains(CallRefused().message(), "serverAuth"));
}

TEST_F(GateClientTest, AWrongTimeMayBeThisMachinesClock) {
  rpc::CertificateSpec spec = GateSpec();
  spec.end = now_ - absl::Hours(1);
  Reissue(spec);
  absl::Status status = CallRefused();
  EXPECT_TRUE(absl::StrContains(status.message(), "expired at")) << status;
  EXPECT_EQ(GetReason(status)->reason, "NOT_VALID_NOW");
  EXPECT_TRUE(absl::StrContains(status.message(), "this machine's clock shows"))
      << status;
  spec.begin = now_ + absl::Hours(1);
  spec.end = now_ + absl::Hours(2);
  Reissue(spec);
  status = CallRefused();
  EXPECT_TRUE(absl::StrContains(status.message(), "this machine's clock shows"))
      << status;
  EXPECT_EQ(GetReason(status)->reason, "NOT_VALID_NOW");
}

TEST_F(GateClientTest, NamesAGateThatClosesTheConnection) {
  Serve([](UniqueFd) {});
  const absl::Status status = Call().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_TRUE(absl::StartsWith(status.message(),
                               absl::StrCat("the gate at ", options_.address)))
      << status;
}

TEST_F(GateClientTest, LeavesASilentGateAtTheDeadline) {
  // The kernel accepts the connection, and nobody reads from it.
  options_.timeout = absl::Milliseconds(20);
  EXPECT_EQ(Call().status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST_F(GateClientTest, AWakerEndsACall) {
  const UniqueFd stop = MakeWaker().value();
  options_.stop_fd = stop.get();
  SetWaker(stop.get());
  EXPECT_EQ(Call().status().code(), absl::StatusCode::kCancelled);
}

TEST_F(GateClientTest, GoesThroughAProxy) {
  options_.proxy.address = ParseHostPort(options_.address).value();
  options_.address = "gate.example.org:443";
  rpc::CertificateSpec spec = GateSpec();
  spec.hosts = {"gate.example.org"};
  Reissue(spec);
  std::string asked;
  Serve([&](UniqueFd fd) {
    char byte = 0;
    while (!absl::StrContains(asked, "\r\n\r\n") &&
           recv(fd.get(), &byte, 1, 0) == 1) {
      asked.push_back(byte);
    }
    const std::string yes = "HTTP/1.1 200 OK\r\n\r\n";
    send(fd.get(), yes.data(), yes.size(), MSG_NOSIGNAL);
    ServeTls(std::move(fd), Answer().SerializeAsString());
  });
  const absl::StatusOr<v1::GateResponse> response = Call();
  EXPECT_TRUE(response.ok()) << response.status();
  EXPECT_TRUE(absl::StartsWith(asked, "CONNECT gate.example.org:443 "));
}

TEST_F(GateClientTest, RefusesOptionsThatCannotBeRight) {
  const GateClientOptions good = options_;
  options_.pin = "short";
  EXPECT_EQ(GateClient::Make(options_).status().code(),
            absl::StatusCode::kInvalidArgument);
  options_ = good;
  options_.address = "gate.example.org";
  EXPECT_EQ(GateClient::Make(options_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::coordinator
