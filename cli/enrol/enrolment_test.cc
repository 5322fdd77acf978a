#include "cli/enrol/enrolment.h"

#include <poll.h>

#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/certificate_request.h"
#include "base/rpc/certificates/public_key.h"
#include "base/status/refusal.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

// Signs what it is asked for, as a gate does.
class FakeGate {
 public:
  FakeGate()
      : authority_(rpc::MakeAuthority("island CA", absl::Now() - absl::Hours(1),
                                      absl::Now() + absl::Hours(100))
                       .value()) {}

  absl::StatusOr<v1::GateResponse> Call(const GatePeer& peer,
                                        const v1::GateRequest& request) {
    requests.push_back(request);
    peers.push_back(peer);
    if (!error.ok()) return error;
    if (request.has_enrol()) {
      key_der_ =
          rpc::ReadCertificateRequest(request.enrol().certificate_request())
              .value()
              .der;
    }
    rpc::CertificateSpec spec;
    spec.common_name = "atoll:island:attic";
    spec.client_auth = true;
    spec.begin = begin;
    spec.end = end;
    v1::GateResponse response;
    v1::Enrolled& enrolled = *response.mutable_enrolled();
    enrolled.mutable_identity()->set_name("attic");
    enrolled.set_certificate_chain_pem(
        rpc::IssueCertificateForKey(authority_, spec, key_der_).value());
    enrolled.set_root_pem(authority_.cert_pem);
    enrolled.set_coordinator_address("c.example.org:7400");
    enrolled.add_server_addresses("s0.example.org:7401");
    enrolled.set_data_token(absl::StrCat("token-", requests.size()));
    return response;
  }

  GateCall AsCall() {
    return [this](const GatePeer& peer, const v1::GateRequest& request) {
      return Call(peer, request);
    };
  }

  std::string pin() const {
    return rpc::ToPin(rpc::ReadPublicKey(authority_.cert_pem).value());
  }

  absl::Status error;
  absl::Time begin = absl::Now() - absl::Minutes(5);
  absl::Time end = absl::Now() + absl::Hours(24);
  std::vector<v1::GateRequest> requests;
  std::vector<GatePeer> peers;

 private:
  const rpc::KeyAndCertificate authority_;
  std::string key_der_;
};

class EnrolmentTest : public ::testing::Test {
 protected:
  EnrolmentTest()
      : parent_(
            ::testing::TempDir() + "/" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(parent_);
    join_ = {"gate.example.org:7402", "spring", "abcdefghijkl",
             std::string(32, 's'), gate_.pin()};
  }

  absl::StatusOr<Enrolment> Enrol(const std::string& name = "") {
    return Enrolment::Enrol(parent_, join_, name, gate_.AsCall(), absl::Now());
  }

  static std::string Read(const std::string& path) {
    return ReadFile(PosixFileSystem(), path, 1 << 20).value();
  }

  const std::string parent_;
  JoinString join_;
  FakeGate gate_;
};

TEST_F(EnrolmentTest, KeepsWhatItGotAndNotTheSecret) {
  const auto made = Enrol();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->record().name, "attic");
  EXPECT_EQ(made->record().coordinator_address, "c.example.org:7400");
  EXPECT_TRUE(rpc::ReadTlsFiles(made->tls_files()).ok());
  for (const auto& file :
       std::filesystem::recursive_directory_iterator(parent_)) {
    if (!file.is_regular_file()) continue;
    EXPECT_FALSE(absl::StrContains(Read(file.path()), join_.token_secret))
        << file.path();
  }
  const auto again = Enrol();
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(gate_.requests.size(), 1);
  const auto opened = Enrolment::Open(parent_, "spring");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->record().server_addresses,
            std::vector<std::string>{"s0.example.org:7401"});
  EXPECT_EQ(opened->ReadDataToken(), "token-1");
  const std::string token_path =
      std::filesystem::path(made->tls_files().cert).parent_path() /
      "data.token";
  EXPECT_EQ(
      std::filesystem::status(token_path).permissions(),
      std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_EQ(Enrolment::Open(parent_, "autumn").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(EnrolmentTest, AsksAgainWithTheSameKey) {
  gate_.error = absl::UnavailableError("cut off");
  EXPECT_FALSE(Enrol().ok());
  gate_.error = absl::OkStatus();
  ASSERT_TRUE(Enrol().ok());
  const auto key = [this](int i) {
    return rpc::ReadCertificateRequest(
               gate_.requests[i].enrol().certificate_request())
        .value()
        .der;
  };
  EXPECT_EQ(key(0), key(1));
}

TEST_F(EnrolmentTest, RefusesAnotherNameThanItHas) {
  ASSERT_TRUE(Enrol("attic").ok());
  EXPECT_EQ(gate_.requests[0].enrol().name(), "attic");
  EXPECT_EQ(Enrol("cellar").status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(EnrolmentTest, RenewsAtTwoThirdsWithItsCertificate) {
  const absl::Time now =
      absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()));
  gate_.begin = now - absl::Minutes(5);
  gate_.end = now + absl::Hours(24);
  auto made = Enrol();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(made->RenewalTime(), now + absl::Hours(16));
  EXPECT_TRUE(made->IsValid(absl::Now()));
  const std::string key = Read(made->tls_files().key);
  const std::string cert = Read(made->tls_files().cert);
  gate_.error = absl::UnavailableError("no network");
  EXPECT_FALSE(made->Renew(gate_.AsCall()).ok());
  EXPECT_EQ(Read(made->tls_files().cert), cert);
  gate_.error = absl::OkStatus();
  gate_.end = now + absl::Hours(48);
  ASSERT_TRUE(made->Renew(gate_.AsCall()).ok());
  EXPECT_EQ(gate_.peers.back().cert_pem, cert);
  EXPECT_EQ(gate_.peers.back().key_pem, key);
  EXPECT_EQ(Read(made->tls_files().key), key);
  EXPECT_EQ(made->RenewalTime(), now + absl::Hours(32));
}

TEST_F(EnrolmentTest, WaitsForTheNextCertificateAfterASleep) {
  gate_.end = absl::Now() - absl::Minutes(1);
  auto made = Enrol();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_FALSE(made->IsValid(absl::Now()));
  gate_.end = absl::Now() + absl::Hours(24);
  EnrolmentRenewer renewer(*made, gate_.AsCall());
  EXPECT_TRUE(renewer.WaitUntilValid(absl::Minutes(2), {}).ok());
  EXPECT_TRUE(made->IsValid(absl::Now()));
}

TEST_F(EnrolmentTest, GivesUpAtOnceIfItIsRevoked) {
  gate_.end = absl::Now() - absl::Minutes(1);
  auto made = Enrol();
  ASSERT_TRUE(made.ok()) << made.status();
  gate_.error = Refuse(absl::StatusCode::kPermissionDenied, "REVOKED",
                       "an operator has revoked attic");
  EnrolmentRenewer renewer(*made, gate_.AsCall());
  EXPECT_EQ(renewer.WaitUntilValid(absl::Hours(1), {}), gate_.error);
}

TEST_F(EnrolmentTest, ARenewerThatEndsEndsItsCall) {
  gate_.end = absl::Now() - absl::Minutes(1);
  auto made = Enrol();
  ASSERT_TRUE(made.ok()) << made.status();
  std::promise<void> called;
  int woken = 0;
  {
    EnrolmentRenewer renewer(
        *made,
        [&](const GatePeer& peer,
            const v1::GateRequest&) -> absl::StatusOr<v1::GateResponse> {
          called.set_value();
          pollfd stop = {peer.stop_fd, POLLIN, 0};
          woken = ::poll(&stop, 1, 60'000);
          return absl::CancelledError("stopped");
        });
    called.get_future().wait();
  }
  EXPECT_EQ(woken, 1);
}

TEST_F(EnrolmentTest, TrustsNoOtherRootThanThePinned) {
  join_.pin = std::string(43, 'A');
  EXPECT_EQ(Enrol().status().code(), absl::StatusCode::kUnauthenticated);
  EXPECT_FALSE(Enrolment::Open(parent_, "spring").ok());
}

TEST_F(EnrolmentTest, GoesOnWithAValidCertificateWhileTheGateIsAway) {
  gate_.begin = absl::Now() - absl::Hours(30);
  gate_.end = absl::Now() + absl::Hours(1);
  ASSERT_TRUE(Enrol().ok());
  gate_.error = absl::UnavailableError("away");
  EXPECT_TRUE(Enrol().ok());
  EXPECT_EQ(gate_.requests.size(), 2);
}

}  // namespace
}  // namespace atl::cli
