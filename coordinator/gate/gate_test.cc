// A gate over loopback, with a coordinator in memory.

#include "coordinator/gate/gate.h"

#include <fcntl.h>
#include <openssl/bn.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/host_port/host_port.h"
#include "base/identity/identity.h"
#include "base/metrics/metrics.h"
#include "base/net/port_watch.h"
#include "base/net/socket.h"
#include "base/obs/version.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/certificate_request.h"
#include "base/rpc/certificates/data_token.h"
#include "base/rpc/certificates/public_key.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/certificates/x509.h"
#include "base/rpc/tls_stream/link_load.h"
#include "base/rpc/tls_stream/tls_stream.h"
#include "base/status/refusal.h"
#include "base/time/clock.h"
#include "base/time/proto_time.h"
#include "coordinator/client/gate_client.h"
#include "coordinator/core/testing/run_simulation.h"
#include "coordinator/gate/announcer.h"
#include "coordinator/gate/gate_files.h"
#include "coordinator/gate/gate_listener.h"
#include "coordinator/gate/testing/memory_coordinator.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

constexpr char kTokenId[] = "abcdefghij01";
constexpr absl::Duration kDay = absl::Hours(24);

net::WaitLimits Long() { return {SystemClock().Now() + absl::Minutes(2), -1}; }

void WriteFile(const std::string& path, const std::string& text) {
  // As a mounted Secret: the new file takes the old one's place.
  std::ofstream(path + ".new", std::ios::binary) << text;
  std::filesystem::rename(path + ".new", path);
}

// The serial number of the certificate, in hex.
std::string SerialOf(const v1::GateResponse& response) {
  const std::string& pem = response.enrolled().certificate_chain_pem();
  const rpc::Certificate certificate = rpc::ReadFirstCertificate(pem);
  BIGNUM* const number =
      ASN1_INTEGER_to_BN(X509_get0_serialNumber(certificate.get()), nullptr);
  char* const text = BN_bn2hex(number);
  const std::string serial = text;
  OPENSSL_free(text);
  BN_free(number);
  return serial;
}

class GateTest : public ::testing::Test {
 protected:
  GateTest() {
    std::filesystem::create_directories(directory_);
    root_ =
        rpc::MakeAuthority("root", now_ - 90 * kDay, now_ + kDay, 1).value();
    island_ca_ = MakeIslandCa();
    WriteIslandCa(island_ca_);
    WriteOwn(IssueOwn());
    coordinator_.AddServer("s0:7401");
    coordinator_.AddServer("s1:7401");
    coordinator_.CreateRun("spring", SimpleSpec());
    CreateToken(kTokenId, v1::ENROLLED_ROLE_ISLAND, "spring", 3);
    gate_spec_.consume_token = [this](const auto& request) {
      return coordinator_.ConsumeToken(request);
    };
    gate_spec_.check_token = [this](const auto& request) {
      return coordinator_.CheckToken(request);
    };
    gate_spec_.renew_certificate = [this](const auto& request) {
      return coordinator_.RenewCertificate(request);
    };
    gate_spec_.metrics = &metrics_;
    gate_spec_.clock = &SystemClock();
    gate_spec_.island_coordinator = "c.example.org:7400";
    gate_spec_.query_coordinator = "q.example.org:7400";
    listener_spec_.address = {"127.0.0.1", 0};
    listener_spec_.metrics = &metrics_;
    listener_spec_.connection_max = absl::Minutes(2);
  }
  ~GateTest() override {
    listener_.reset();
    std::filesystem::remove_all(directory_);
  }

  void CreateToken(const std::string& token_id, v1::EnrolledRole role,
                   const std::string& run_id, int64_t use_count_max) {
    v1::Token token;
    token.set_token_id(token_id);
    token.set_role(role);
    token.set_run_id(run_id);
    token.set_use_count_max(use_count_max);
    *token.mutable_expire_time() = ToProto(now_ + kDay);
    coordinator_.CreateToken(token, secret_);
  }

  // --- Certificates and files ---

  rpc::KeyAndCertificate MakeIslandCa() const {
    return rpc::IssueAuthority(root_, {.common_name = "islands",
                                       .client_auth = true,
                                       .begin = now_ - 90 * kDay,
                                       .end = now_ + kDay})
        .value();
  }
  rpc::KeyAndCertificate IssueOwn() const {
    return rpc::IssueCertificate(root_, {.common_name = "atoll:gate:g",
                                         .hosts = {"127.0.0.1"},
                                         .server_auth = true,
                                         .client_auth = true,
                                         .begin = now_ - absl::Hours(1),
                                         .end = now_ + absl::Hours(1)})
        .value();
  }
  void WriteOwn(const rpc::KeyAndCertificate& own) const {
    WriteFile(directory_ + "/tls.key", own.key_pem);
    WriteFile(directory_ + "/tls.crt", own.cert_pem + root_.cert_pem);
    WriteFile(directory_ + "/ca.crt", root_.cert_pem);
  }
  void WriteIslandCa(const rpc::KeyAndCertificate& island_ca) const {
    WriteFile(directory_ + "/island-ca.key", island_ca.key_pem);
    WriteFile(directory_ + "/island-ca.crt", island_ca.cert_pem);
  }
  absl::StatusOr<std::unique_ptr<GateFiles>> OpenFiles() const {
    return GateFiles::Open({directory_ + "/tls.crt", directory_ + "/tls.key",
                            directory_ + "/ca.crt"},
                           directory_);
  }
  // Whether those who know only the root trust an island's chain.
  bool IsTrusted(const std::string& chain_pem) const {
    return rpc::VerifyChain(rpc::ReadCertificates(chain_pem), root_.cert_pem,
                            X509_PURPOSE_SSL_CLIENT, absl::Now())
        .ok();
  }
  // The certificate of an island with the key `key_pem`.
  std::string IssueIsland(const rpc::KeyAndCertificate& ca,
                          const std::string& key_pem, absl::Time end) const {
    const std::string request = rpc::MakeCertificateRequest(key_pem).value();
    return rpc::IssueCertificateForKey(
               ca,
               {.common_name = "atoll:island:e-attic",
                .uris = {MakeEnrolledUri(MemoryCoordinator::kClusterId,
                                         "uid-spring", Role::kIsland,
                                         "e-attic")},
                .client_auth = true,
                .begin = now_ - 60 * kDay,
                .end = end},
               rpc::ReadCertificateRequest(request).value().der)
        .value();
  }

  // --- The gate and its callers ---

  // Starts the gate with the specs, on first use.
  HostPort Address() {
    if (listener_ == nullptr) {
      files_ = OpenFiles().value();
      gate_spec_.files = files_.get();
      gate_ = std::make_unique<Gate>(gate_spec_);
      listener_spec_.gate = gate_.get();
      listener_spec_.files = files_.get();
      listener_ = GateListener::Start(listener_spec_).value();
    }
    return listener_->address();
  }

  GateClientOptions ClientOptions() {
    const HostPort address = Address();
    GateClientOptions options;
    options.address = JoinHostPort(address.host, address.port);
    options.pin = rpc::ToPin(rpc::ReadPublicKey(root_.cert_pem).value());
    options.timeout = absl::Minutes(2);
    return options;
  }
  absl::StatusOr<v1::GateResponse> Call(const v1::GateRequest& request) {
    return GateClient::Make(ClientOptions()).value()->Call(request);
  }

  v1::GateRequest EnrolRequest(const std::string& name,
                               const std::string& request_der) const {
    v1::GateRequest request;
    v1::TokenEnrolment& enrol = *request.mutable_enrol();
    enrol.set_token_id(kTokenId);
    enrol.set_token_secret(secret_);
    enrol.set_run_id("spring");
    enrol.set_role(v1::ENROLLED_ROLE_ISLAND);
    enrol.set_name(name);
    enrol.set_certificate_request(request_der);
    return request;
  }
  absl::StatusOr<v1::GateResponse> Enrol(const std::string& name,
                                         const std::string& request_der) {
    return Call(EnrolRequest(name, request_der));
  }
  absl::StatusOr<v1::GateResponse> Renew(const std::string& cert_pem,
                                         const std::string& key_pem) {
    GateClientOptions options = ClientOptions();
    options.cert_pem = cert_pem;
    options.key_pem = key_pem;
    v1::GateRequest request;
    request.mutable_renew();
    return GateClient::Make(options).value()->Call(request);
  }
  v1::GateRequest CheckRequest() const {
    v1::GateRequest request;
    request.mutable_check()->set_token_id(kTokenId);
    request.mutable_check()->set_token_secret(secret_);
    request.mutable_check()->set_run_id("spring");
    return request;
  }
  absl::StatusOr<rpc::LinkLoad> Probe(v1::LinkDirection direction,
                                      const GateClientOptions& options,
                                      bool with_token = true) {
    v1::LinkProbe probe;
    probe.set_direction(direction);
    if (with_token) *probe.mutable_token() = CheckRequest().check();
    return GateClient::Make(options).value()->ProbeLink(probe);
  }
  absl::Status CheckToken() { return Call(CheckRequest()).status(); }

  UniqueFd DialRaw() { return net::Dial(Address(), Long()).value(); }
  // Sends the first byte of TLS.
  UniqueFd DialAndBegin() {
    UniqueFd fd = DialRaw();
    EXPECT_EQ(send(fd.get(), "\x16", 1, MSG_NOSIGNAL), 1);
    return fd;
  }
  // Whether the gate closes the connection, without a word.
  static bool IsClosed(const UniqueFd& fd) {
    char byte = 0;
    return net::WaitForSocket(fd.get(), POLLIN, Long()).ok() &&
           recv(fd.get(), &byte, 1, 0) <= 0;
  }
  // Lets `use` drive a client of OpenSSL's.
  void WithOpenssl(int version_max, const std::function<void(SSL*)>& use) {
    const UniqueFd fd = net::Dial(Address(), Long()).value();
    // OpenSSL waits.
    const int blocking = fcntl(fd.get(), F_GETFL) & ~O_NONBLOCK;
    fcntl(fd.get(), F_SETFL, blocking);
    SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_max_proto_version(context, version_max);
    SSL* const ssl = SSL_new(context);
    SSL_set_fd(ssl, fd.get());
    use(ssl);
    SSL_free(ssl);
    SSL_CTX_free(context);
  }

  auto Announce() {
    return [this](const v1::AnnounceGateRequest& request) {
      return coordinator_.AnnounceGate(request);
    };
  }

  void ExpectRefused(const absl::Status& status, absl::StatusCode code,
                     absl::string_view words) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), words)) << status;
  }

  const absl::Time now_ = absl::Now();
  const std::string directory_ = absl::StrCat(
      ::testing::TempDir(), "/gate_test.", getpid(), ".",
      ::testing::UnitTest::GetInstance()->current_test_info()->name());
  const std::string secret_ = std::string(32, '\x7f');
  rpc::KeyAndCertificate root_;
  rpc::KeyAndCertificate island_ca_;
  MemoryCoordinator coordinator_;
  Metrics metrics_;
  Gate::Spec gate_spec_;
  GateListener::Spec listener_spec_;
  std::unique_ptr<GateFiles> files_;
  std::unique_ptr<Gate> gate_;
  std::unique_ptr<GateListener> listener_;
};

// --- Enrolment ---------------------------------------------------------------

TEST_F(GateTest, TradesATokenForACertificate) {
  const rpc::KeyAndRequest own = rpc::MakeKeyAndRequest().value();
  const absl::StatusOr<v1::GateResponse> response =
      Enrol("attic", own.request_der);
  ASSERT_TRUE(response.ok()) << response.status();
  const v1::Enrolled& enrolled = response->enrolled();
  EXPECT_EQ(enrolled.identity().name(), "e-attic");
  EXPECT_EQ(enrolled.root_pem(), root_.cert_pem);
  EXPECT_EQ(enrolled.coordinator_address(), "c.example.org:7400");
  EXPECT_EQ(enrolled.server_addresses_size(), 2);
  EXPECT_TRUE(response->has_time());
  const std::string& chain_pem = enrolled.certificate_chain_pem();
  EXPECT_TRUE(IsTrusted(chain_pem));
  EXPECT_EQ(rpc::ReadCommonName(chain_pem).value(), "atoll:island:e-attic");
  EXPECT_TRUE(rpc::CheckKey(chain_pem, own.key_pem).ok());
  const rpc::CertificateFacts facts = rpc::ReadFacts(chain_pem).value();
  const RunScope scope =
      ParseRunScope(facts.uris, Role::kIsland, "e-attic").value();
  EXPECT_EQ(scope.run_uid, "uid-spring");
  const auto token =
      rpc::VerifyDataToken(enrolled.data_token(), island_ca_.cert_pem, now_);
  ASSERT_TRUE(token.ok()) << token.status();
  EXPECT_EQ(token->cluster_id, scope.cluster_id);
  EXPECT_EQ(token->run_uid, "uid-spring");
  EXPECT_EQ(token->name, "e-attic");
  EXPECT_EQ(token->end, facts.end);
  // What the coordinator was asked.
  ASSERT_EQ(coordinator_.consumptions().size(), 1);
  const v1::ConsumeTokenRequest asked = coordinator_.consumptions()[0];
  EXPECT_EQ(FromProto(asked.lifetime()), kDay);
  EXPECT_EQ(asked.key_sha256(), rpc::ReadPublicKey(chain_pem).value().sha256);
}

TEST_F(GateTest, AReaderIsToldWhereQueriesAreServed) {
  v1::GateRequest request =
      EnrolRequest("anna", rpc::MakeKeyAndRequest().value().request_der);
  constexpr char kReaderToken[] = "abcdefghijkr";
  CreateToken(kReaderToken, v1::ENROLLED_ROLE_READER, "spring", 1);
  request.mutable_enrol()->set_token_id(kReaderToken);
  request.mutable_enrol()->set_role(v1::ENROLLED_ROLE_READER);
  v1::GateRequest check = CheckRequest();
  check.mutable_check()->set_token_id(kReaderToken);
  const auto checked = Call(check);
  ASSERT_TRUE(checked.ok()) << checked.status();
  EXPECT_EQ(checked->token_state().coordinator_address(), "q.example.org:7400");
  const auto enrolled = Call(request);
  ASSERT_TRUE(enrolled.ok()) << enrolled.status();
  EXPECT_EQ(enrolled->enrolled().coordinator_address(), "q.example.org:7400");
}

TEST_F(GateTest, TheSameKeyGetsTheSameCertificateAgain) {
  const std::string request = rpc::MakeKeyAndRequest().value().request_der;
  const auto first = Enrol("attic", request);
  const auto second = Enrol("attic", request);
  ASSERT_TRUE(first.ok() && second.ok()) << second.status();
  EXPECT_EQ(SerialOf(*first), SerialOf(*second));
  const auto other = Enrol("b", rpc::MakeKeyAndRequest()->request_der);
  EXPECT_NE(SerialOf(*first), SerialOf(other.value()));
}

TEST_F(GateTest, ARequestThatItsKeyDidNotSignAsksNothing) {
  std::string request = rpc::MakeKeyAndRequest().value().request_der;
  request.back() ^= 1;
  ExpectRefused(Enrol("attic", request).status(),
                absl::StatusCode::kInvalidArgument, "signature is wrong");
  EXPECT_EQ(coordinator_.call_count(), 0);
}

TEST_F(GateTest, MalformedFieldsAskNothing) {
  const std::string der = rpc::MakeKeyAndRequest().value().request_der;
  v1::GateRequest request = EnrolRequest("Not An Id", der);
  ExpectRefused(Call(request).status(), absl::StatusCode::kInvalidArgument,
                "name");
  request = EnrolRequest("attic", der);
  request.mutable_enrol()->set_token_id("x");
  ExpectRefused(Call(request).status(), absl::StatusCode::kInvalidArgument,
                "token_id");
  request = EnrolRequest("attic", der);
  request.mutable_enrol()->clear_token_secret();
  ExpectRefused(Call(request).status(), absl::StatusCode::kInvalidArgument,
                "token_secret");
  request = EnrolRequest("attic", der);
  request.mutable_enrol()->clear_run_id();
  ExpectRefused(Call(request).status(), absl::StatusCode::kInvalidArgument,
                "run_id");
  EXPECT_EQ(coordinator_.call_count(), 0);
}

TEST_F(GateTest, TheCoordinatorsRefusalReachesTheStranger) {
  const std::string der = rpc::MakeKeyAndRequest().value().request_der;
  EXPECT_TRUE(Enrol("attic", der).ok());
  const absl::Status status =
      Enrol("attic", rpc::MakeKeyAndRequest()->request_der).status();
  ExpectRefused(status, absl::StatusCode::kAlreadyExists, "--island-id");
  EXPECT_EQ(GetReason(status)->reason, "NAME_TAKEN");
}

TEST_F(GateTest, WhatIsNotAboutTheRequestIsHidden) {
  for (const absl::Status& inner :
       {absl::InternalError("secret detail"),
        absl::UnavailableError("10.0.0.1"), absl::DeadlineExceededError("x"),
        absl::FailedPreconditionError("x"),
        RefuseForNow(absl::StatusCode::kResourceExhausted, "QUEUE_FULL",
                     "too many calls", absl::Seconds(1)),
        absl::PermissionDeniedError("the role reader may not call")}) {
    coordinator_.FailNext(inner);
    EXPECT_EQ(CheckToken(),
              Refuse(absl::StatusCode::kUnavailable, "UNAVAILABLE",
                     "the coordinator is away; try again"));
  }
}

TEST_F(GateTest, NothingButAnIslandsDayIsSigned) {
  v1::CertificateGrant spoilt;
  *spoilt.mutable_end_time() = ToProto(now_ + 30 * kDay);
  coordinator_.SpoilGrants(spoilt);
  ExpectRefused(Enrol("attic", rpc::MakeKeyAndRequest()->request_der).status(),
                absl::StatusCode::kInternal, "does not sign");
}

TEST_F(GateTest, ChecksATokenWithoutConsumingIt) {
  const v1::GateResponse response = Call(CheckRequest()).value();
  EXPECT_EQ(response.token_state().uses_left(), 3);
  EXPECT_EQ(response.token_state().server_addresses_size(), 2);
  EXPECT_EQ(Call(CheckRequest()).value().token_state().uses_left(), 3);
}

TEST_F(GateTest, CallsOfAnAddressHaveALimit) {
  gate_spec_.address_calls = {1e-6, 1};
  (void)Address();
  const std::string bytes = CheckRequest().SerializeAsString();
  const auto answer = [&](const std::string& key) {
    v1::GateResponse response;
    EXPECT_TRUE(
        response.ParseFromString(gate_->Answer(bytes, {key, ""}).bytes));
    return response.error().reason();
  };
  EXPECT_EQ(answer("a"), "");
  EXPECT_EQ(answer("a"), "BUSY");
  EXPECT_EQ(answer("b"), "");
}

TEST_F(GateTest, TooManyCallsAreRefusedAtOnce) {
  gate_spec_.all_calls = {1e-6, 2};
  EXPECT_TRUE(CheckToken().ok());
  EXPECT_TRUE(CheckToken().ok());
  const absl::Status status = CheckToken();
  ExpectRefused(status, absl::StatusCode::kResourceExhausted, "try again");
  EXPECT_EQ(GetReason(status)->reason, "BUSY");
  EXPECT_EQ(coordinator_.call_count(), 2);
}

TEST_F(GateTest, StrangersCannotUseUpTheRenewals) {
  gate_spec_.all_calls = {1e-6, 1};
  gate_spec_.name_renewals = {1e-6, 2};
  const rpc::KeyAndRequest own = rpc::MakeKeyAndRequest().value();
  EXPECT_TRUE(Enrol("attic", own.request_der).ok());
  EXPECT_EQ(GetReason(CheckToken())->reason, "BUSY");
  const std::string pem =
      IssueIsland(island_ca_, own.key_pem, now_ + absl::Hours(1));
  EXPECT_TRUE(Renew(pem, own.key_pem).ok());
  EXPECT_TRUE(Renew(pem, own.key_pem).ok());
  EXPECT_EQ(GetReason(Renew(pem, own.key_pem).status())->reason, "BUSY");
}

// --- Renewal -----------------------------------------------------------------

class GateRenewalTest : public GateTest {
 protected:
  GateRenewalTest() : own_(rpc::MakeKeyAndRequest().value()) {
    EXPECT_TRUE(Enrol("attic", own_.request_der).ok());
  }

  const rpc::KeyAndRequest own_;
};

TEST_F(GateRenewalTest, ACertificateIsRenewedForItsKey) {
  const std::string old_pem =
      IssueIsland(island_ca_, own_.key_pem, now_ + absl::Hours(1));
  const absl::StatusOr<v1::GateResponse> response =
      Renew(old_pem, own_.key_pem);
  ASSERT_TRUE(response.ok()) << response.status();
  const std::string& chain_pem = response->enrolled().certificate_chain_pem();
  EXPECT_TRUE(rpc::CheckKey(chain_pem, own_.key_pem).ok());
  EXPECT_EQ(response->enrolled().identity().name(), "e-attic");
  ASSERT_EQ(coordinator_.renewals().size(), 1);
  EXPECT_EQ(coordinator_.renewals()[0].identity().run_uid(), "uid-spring");
  EXPECT_TRUE(rpc::VerifyDataToken(response->enrolled().data_token(),
                                   island_ca_.cert_pem, now_)
                  .ok());
  // The renewed one is good for the next time.
  EXPECT_TRUE(Renew(chain_pem, own_.key_pem).ok());
}

TEST_F(GateRenewalTest, ACertificateIsRenewedADayAfterItsEnd) {
  EXPECT_TRUE(
      Renew(IssueIsland(island_ca_, own_.key_pem, now_ - kDay), own_.key_pem)
          .ok());
}

TEST_F(GateRenewalTest, ACertificateIsNotRenewed31DaysAfterItsEnd) {
  ExpectRefused(Renew(IssueIsland(island_ca_, own_.key_pem, now_ - 31 * kDay),
                      own_.key_pem)
                    .status(),
                absl::StatusCode::kUnauthenticated, "new join string");
  EXPECT_TRUE(coordinator_.renewals().empty());
}

TEST_F(GateRenewalTest, ACertificateOfAnotherCaIsNotRenewed) {
  ExpectRefused(Renew(IssueIsland(MakeIslandCa(), own_.key_pem, now_ + kDay),
                      own_.key_pem)
                    .status(),
                absl::StatusCode::kUnauthenticated, "does not vouch for it");
  EXPECT_TRUE(coordinator_.renewals().empty());
}

TEST_F(GateRenewalTest, NobodyRenewsWithoutACertificate) {
  ExpectRefused(Renew("", "").status(), absl::StatusCode::kUnauthenticated,
                "no certificate was shown");
}

TEST_F(GateRenewalTest, ARevokedIslandIsNotRenewed) {
  coordinator_.RevokeIsland("spring", "e-attic");
  const absl::Status status =
      Renew(IssueIsland(island_ca_, own_.key_pem, now_ + kDay), own_.key_pem)
          .status();
  EXPECT_EQ(GetReason(status)->reason, "REVOKED") << status;
}

TEST_F(GateTest, AHolderOfATokenSeesTheRunUnlessItIsTooLarge) {
  const auto seen = Call(CheckRequest());
  ASSERT_TRUE(seen.ok()) << seen.status();
  EXPECT_TRUE(seen->token_state().run().has_spec());
  // With this many fragments and addresses the answer exceeds one message.
  for (int i = 0; i < 48; ++i) {
    coordinator_.AddServer(absl::StrCat(std::string(290, 's'), ":7401"));
  }
  coordinator_.CreateRun("wide", SimpleSpec(/*fragment_count=*/256));
  CreateToken("abcdefghijwd", v1::ENROLLED_ROLE_ISLAND, "wide", 1);
  v1::GateRequest request = CheckRequest();
  request.mutable_check()->set_token_id("abcdefghijwd");
  request.mutable_check()->set_run_id("wide");
  const auto cut = Call(request);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_FALSE(cut->token_state().run().has_spec());
  EXPECT_EQ(cut->token_state().run().program_version(), kProgramVersion);
}

// --- The link ----------------------------------------------------------------

TEST_F(GateTest, AHolderOfATokenMeasuresTheLinkBothWays) {
  for (const v1::LinkDirection direction :
       {v1::LINK_DIRECTION_UP, v1::LINK_DIRECTION_DOWN}) {
    const absl::StatusOr<rpc::LinkLoad> load = Probe(direction, ClientOptions());
    ASSERT_TRUE(load.ok()) << load.status();
    EXPECT_GT(load->bytes, 0);
    EXPECT_LE(load->bytes, rpc::kLinkLoadBytesMax);
    EXPECT_GT(load->span, absl::ZeroDuration());
  }
  EXPECT_TRUE(coordinator_.consumptions().empty());
}

TEST_F(GateTest, AProbeNeedsADirectionAndAToken) {
  ExpectRefused(
      Probe(v1::LINK_DIRECTION_UNSPECIFIED, ClientOptions()).status(),
      absl::StatusCode::kInvalidArgument, "no direction");
  v1::GateRequest request;
  request.mutable_probe()->set_direction(v1::LINK_DIRECTION_DOWN);
  ExpectRefused(Call(request).status(), absl::StatusCode::kUnauthenticated,
                "no certificate was shown");
  *request.mutable_probe()->mutable_token() = CheckRequest().check();
  request.mutable_probe()->mutable_token()->set_token_secret(
      std::string(32, 'x'));
  ExpectRefused(Call(request).status(), absl::StatusCode::kUnauthenticated,
                "no such token");
}

TEST_F(GateTest, AProbeOfAnAddressExcludesItsSecond) {
  Address();
  v1::GateRequest request;
  request.mutable_probe()->set_direction(v1::LINK_DIRECTION_DOWN);
  *request.mutable_probe()->mutable_token() = CheckRequest().check();
  const std::string bytes = request.SerializeAsString();
  const auto answer = [&](const std::string& key) {
    const Gate::Answered answered = gate_->Answer(bytes, {key, ""});
    v1::GateResponse response;
    EXPECT_TRUE(response.ParseFromString(answered.bytes));
    EXPECT_EQ(answered.probe != v1::LINK_DIRECTION_UNSPECIFIED,
              response.has_link());
    return response.has_link() ? "" : response.error().reason();
  };
  EXPECT_EQ(answer("a"), "");
  EXPECT_EQ(answer("a"), "BUSY");
  EXPECT_EQ(answer("b"), "");
  EXPECT_EQ(answer("c"), "BUSY");
  gate_->EndProbe("a");
  EXPECT_EQ(answer("c"), "");
}

TEST_F(GateRenewalTest, AnEnrolledIslandMeasuresTheLinkWhileItIsValid) {
  const int calls_before = coordinator_.call_count();
  GateClientOptions options = ClientOptions();
  options.key_pem = own_.key_pem;
  options.cert_pem = IssueIsland(island_ca_, own_.key_pem, now_ - kDay);
  ExpectRefused(Probe(v1::LINK_DIRECTION_DOWN, options, false).status(),
                absl::StatusCode::kUnauthenticated, "expired");
  options.cert_pem = IssueIsland(MakeIslandCa(), own_.key_pem, now_ + kDay);
  const absl::Status foreign =
      Probe(v1::LINK_DIRECTION_DOWN, options, false).status();
  ExpectRefused(foreign, absl::StatusCode::kUnauthenticated,
                "island CA does not vouch");
  EXPECT_FALSE(absl::StrContains(foreign.message(), "renew")) << foreign;
  options.cert_pem = IssueIsland(island_ca_, own_.key_pem, now_ + kDay);
  EXPECT_TRUE(Probe(v1::LINK_DIRECTION_DOWN, options, false).ok());
  EXPECT_EQ(coordinator_.call_count(), calls_before);
}

// --- The port ----------------------------------------------------------------

TEST_F(GateTest, ARequestForNothingIsRefused) {
  ExpectRefused(Call(v1::GateRequest()).status(),
                absl::StatusCode::kInvalidArgument, "asks for nothing");
}

TEST_F(GateTest, AMessageThatIsNoRequestIsRefused) {
  const auto stream =
      rpc::TlsStream::Connect(*rpc::TlsContext::MakeClient("", "").value(),
                              DialRaw(), "127.0.0.1", nullptr, Long())
          .value();
  EXPECT_TRUE(stream->Send("\xff\xff").ok());
  v1::GateResponse response;
  EXPECT_TRUE(response.ParseFromString(stream->Receive().value()));
  EXPECT_EQ(response.error().reason(), "UNREADABLE_MESSAGE");
  // One request, one response.
  EXPECT_EQ(stream->Receive().status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(GateTest, AnotherPinSendsNothing) {
  GateClientOptions options = ClientOptions();
  options.pin = rpc::ToPin(rpc::ReadPublicKey(island_ca_.cert_pem).value());
  const absl::Status status =
      GateClient::Make(options).value()->Call(CheckRequest()).status();
  EXPECT_EQ(GetReason(status)->reason, "WRONG_PIN");
  EXPECT_EQ(coordinator_.call_count(), 0);
}

TEST_F(GateTest, ATooLongMessageClosesTheConnection) {
  WithOpenssl(TLS1_3_VERSION, [](SSL* ssl) {
    EXPECT_EQ(SSL_connect(ssl), 1);
    const unsigned char prefix[] = {0xff, 0xff, 0xff, 0xff};
    EXPECT_EQ(SSL_write(ssl, prefix, sizeof(prefix)), 4);
    char byte = 0;
    EXPECT_LE(SSL_read(ssl, &byte, 1), 0);
  });
}

TEST_F(GateTest, OlderTlsIsRefused) {
  WithOpenssl(TLS1_2_VERSION, [](SSL* ssl) { EXPECT_NE(SSL_connect(ssl), 1); });
}

TEST_F(GateTest, GarbageClosesTheConnection) {
  const UniqueFd fd = DialRaw();
  const std::string garbage = "GET / HTTP/1.1\r\n\r\n";
  send(fd.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  // TLS sends an alert first.
  char bytes[64];
  while (net::WaitForSocket(fd.get(), POLLIN, Long()).ok() &&
         recv(fd.get(), bytes, sizeof(bytes), 0) > 0) {
  }
  EXPECT_TRUE(CheckToken().ok());
}

TEST_F(GateTest, AWatchSeesThatItsPortAnswers) {
  const absl::Status status =
      net::CheckPort(Address(), /*has_tls=*/true, Long());
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(GateTest, ASilentClientIsClosed) { EXPECT_TRUE(IsClosed(DialRaw())); }

TEST_F(GateTest, ASlowClientIsClosedAtItsDeadline) {
  listener_spec_.connection_max = absl::Milliseconds(20);
  EXPECT_TRUE(IsClosed(DialAndBegin()));
}

TEST_F(GateTest, StrangersKeepNoClientOut) {
  listener_spec_.limits = {.count_max = 4, .stranger_max = 2};
  std::vector<UniqueFd> open;
  for (int i = 0; i < 8; ++i) open.push_back(DialAndBegin());
  const absl::Status status = CheckToken();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(IsClosed(open.front()));
}

TEST_F(GateTest, EndsWhileClientsAreSilent) {
  const UniqueFd silent = DialRaw();
  const UniqueFd open = DialAndBegin();
  listener_->Drain(absl::Milliseconds(1));
  EXPECT_FALSE(net::Dial(listener_->address(), Long()).ok());
  listener_.reset();
  EXPECT_TRUE(IsClosed(silent));
  EXPECT_TRUE(IsClosed(open));
}

TEST_F(GateTest, CountsWhatItAnswers) {
  EXPECT_TRUE(CheckToken().ok());
  v1::GateRequest wrong = CheckRequest();
  wrong.mutable_check()->set_token_secret(std::string(32, 'x'));
  EXPECT_FALSE(Call(wrong).ok());
  std::string seen;
  for (const prometheus::MetricFamily& family : metrics_.Collect()) {
    if (family.name != "atoll_gate_requests_total") continue;
    for (const prometheus::ClientMetric& metric : family.metric) {
      for (const auto& label : metric.label) {
        absl::StrAppend(&seen, label.value, " ");
      }
      absl::StrAppend(&seen, metric.counter.value, "\n");
    }
  }
  EXPECT_TRUE(absl::StrContains(seen, "check ok 1\n")) << seen;
  EXPECT_TRUE(absl::StrContains(seen, "check unauthenticated 1\n")) << seen;
}

// --- Files -------------------------------------------------------------------

TEST_F(GateTest, NewFilesAreUsedWithoutARestart) {
  EXPECT_TRUE(CheckToken().ok());
  const rpc::KeyAndCertificate old_ca = island_ca_;
  root_ = rpc::MakeAuthority("root", now_ - 90 * kDay, now_ + kDay, 1).value();
  island_ca_ = MakeIslandCa();
  WriteIslandCa(island_ca_);
  WriteOwn(IssueOwn());
  // The client pins the new root now.
  const absl::StatusOr<v1::GateResponse> response =
      Enrol("attic", rpc::MakeKeyAndRequest()->request_der);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_TRUE(IsTrusted(response->enrolled().certificate_chain_pem()));
}

TEST_F(GateTest, HalfOfANewPairKeepsTheOldOne) {
  EXPECT_TRUE(CheckToken().ok());
  WriteFile(directory_ + "/island-ca.crt", MakeIslandCa().cert_pem);
  WriteFile(directory_ + "/tls.key", IssueOwn().key_pem);
  EXPECT_TRUE(Enrol("attic", rpc::MakeKeyAndRequest()->request_der).ok());
}

TEST_F(GateTest, AChainWithoutItsRootIsRefusedAtTheStart) {
  const rpc::KeyAndCertificate own = IssueOwn();
  WriteFile(directory_ + "/tls.key", own.key_pem);
  WriteFile(directory_ + "/tls.crt", own.cert_pem);
  ExpectRefused(OpenFiles().status(), absl::StatusCode::kInvalidArgument,
                "must end with the root CA");
}

TEST_F(GateTest, AnIslandCaThatCannotSignIsRefusedAtTheStart) {
  WriteIslandCa(IssueOwn());
  ExpectRefused(OpenFiles().status(), absl::StatusCode::kInvalidArgument,
                "is not a CA's certificate");
}

TEST_F(GateTest, NamesTheKeysThatItMustNotHave) {
  EXPECT_EQ(FindForbiddenKeys(directory_), "");
  WriteFile(directory_ + "/root.key", "x");
  WriteFile(directory_ + "/ca.key", "x");
  WriteFile(directory_ + "/service-ca.key", "x");
  EXPECT_EQ(FindForbiddenKeys(directory_),
            "root.key, ca.key, service-ca.key");
}

// --- Announcements -----------------------------------------------------------

TEST_F(GateTest, AnnouncesItselfAgainAndAgain) {
  coordinator_.FailNext(absl::UnavailableError("away"));
  const std::unique_ptr<GateFiles> files = OpenFiles().value();
  const Announcer announcer({.announce = Announce(),
                             .files = files.get(),
                             .address = "gate.example.org:443",
                             .interval = absl::Milliseconds(1),
                             .retry_interval = absl::Milliseconds(1)});
  EXPECT_TRUE(coordinator_.WaitForAnnouncements(3, absl::Minutes(2)));
  const v1::AnnounceGateRequest seen = coordinator_.announcements()[2];
  EXPECT_EQ(seen.address(), "gate.example.org:443");
  EXPECT_EQ(seen.pin(), rpc::ToPin(rpc::ReadPublicKey(root_.cert_pem).value()));
}

TEST_F(GateTest, AnAnnouncementThatFailsIsRepeatedSoon) {
  coordinator_.FailNext(absl::UnavailableError("away"));
  const std::unique_ptr<GateFiles> files = OpenFiles().value();
  const Announcer announcer({.announce = Announce(),
                             .files = files.get(),
                             .address = "gate.example.org:443",
                             .interval = absl::Hours(1),
                             .retry_interval = absl::Milliseconds(1)});
  EXPECT_TRUE(coordinator_.WaitForAnnouncements(2, absl::Minutes(2)));
}

}  // namespace
}  // namespace atl::coordinator
