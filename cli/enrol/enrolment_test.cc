#include "cli/enrol/enrolment.h"

#include <poll.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/rpc/certificates/certificate_request.h"
#include "base/status/refusal.h"
#include "cli/enrol/testing/fake_gate.h"
#include "cli/settings/settings.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

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

  absl::StatusOr<Enrolment> Enrol(
      const std::string& name = "",
      v1::EnrolledRole role = v1::ENROLLED_ROLE_ISLAND) {
    return Enrolment::Enrol(parent_, join_, role, name, gate_.AsCall(),
                            absl::Now());
  }
  absl::StatusOr<Enrolment> EnrolReader() {
    return Enrol("", v1::ENROLLED_ROLE_READER);
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
  EXPECT_EQ(made->record().name, "e-attic");
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
  EXPECT_TRUE(Enrol("attic").ok());
  EXPECT_TRUE(Enrol("e-attic").ok());
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

TEST_F(EnrolmentTest, GivesUpAtOnceIfAFileIsOfNoUse) {
  auto made = Enrol();
  ASSERT_TRUE(made.ok()) << made.status();
  const std::string cert = made->tls_files().cert;
  const auto expect_damaged = [&](const std::string& file) {
    EnrolmentRenewer renewer(*made, gate_.AsCall());
    const absl::Status ended = renewer.WaitUntilValid(absl::Hours(1), {});
    EXPECT_TRUE(absl::IsDataLoss(ended)) << ended;
    EXPECT_TRUE(absl::StartsWith(ended.message(), file)) << ended;
    EXPECT_TRUE(absl::StrContains(ended.message(), "with a new string"));
    EXPECT_EQ(Enrol().status(), ended);
  };
  std::ofstream(made->tls_files().key).close();  // Empty.
  EXPECT_TRUE(absl::StartsWith(made->Renew(gate_.AsCall()).message(),
                               made->tls_files().key));
  std::ofstream(cert).close();
  expect_damaged(cert);
  std::filesystem::remove(cert);
  expect_damaged(cert);
  EXPECT_EQ(gate_.requests.size(), 1);
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

TEST_F(EnrolmentTest, AReaderGetsAProfileThatNamesItsFiles) {
  auto made = EnrolReader();
  ASSERT_TRUE(made.ok()) << made.status();
  EXPECT_EQ(gate_.requests[0].enrol().role(), v1::ENROLLED_ROLE_READER);
  const auto resolve = [&] {
    Settings::Sources sources;
    sources.profile_path = made->profile_path();
    sources.profile_text = Read(made->profile_path());
    return Settings::Resolve(sources).value();
  };
  const Settings settings = resolve();
  EXPECT_EQ(settings.Get("coordinator"), "c.example.org:7400");
  EXPECT_EQ(settings.Get("tls_cert"), made->tls_files().cert);
  EXPECT_EQ(settings.Get("tls_key"), made->tls_files().key);
  EXPECT_EQ(settings.Get("tls_ca"), made->tls_files().ca);
  gate_.coordinator_address = "d.example.org:7400";
  ASSERT_TRUE(made->Renew(gate_.AsCall()).ok());
  EXPECT_EQ(resolve().Get("coordinator"), "d.example.org:7400");
}

TEST_F(EnrolmentTest, ARenewalKeepsWhatTheUserAddedToTheProfile) {
  auto made = EnrolReader();
  ASSERT_TRUE(made.ok()) << made.status();
  std::ofstream(made->profile_path(), std::ios::app) << "timeout = \"5s\"\n";
  ASSERT_TRUE(made->Renew(gate_.AsCall()).ok());
  EXPECT_TRUE(absl::StrContains(Read(made->profile_path()), "timeout"));
}

TEST_F(EnrolmentTest, AReaderAndAnIslandOfARunAreTwo) {
  ASSERT_TRUE(EnrolReader().ok());
  EXPECT_TRUE(absl::IsNotFound(Enrolment::Open(parent_, "spring").status()));
  join_.token_id = "abcdefghijkm";
  const auto island = Enrol();
  ASSERT_TRUE(island.ok()) << island.status();
  EXPECT_FALSE(std::filesystem::exists(island->profile_path()));
  const auto opened = Enrolment::Open(parent_, "spring");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->record().token_id, "abcdefghijkm");
}

TEST_F(EnrolmentTest, AStringThatHasEnrolledAReaderEnrolsNoIsland) {
  ASSERT_TRUE(EnrolReader().ok());
  EXPECT_EQ(Enrol().status().code(), absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(EnrolReader().ok());
  EXPECT_EQ(gate_.requests.size(), 1);
}

TEST_F(EnrolmentTest, ARecordWithoutARoleIsAnIslands) {
  const auto made = Enrol();
  ASSERT_TRUE(made.ok()) << made.status();
  const std::string path = parent_ + "/spring.abcdefghijkl/enrolment.json";
  std::string text = Read(path);
  const std::string role = "  \"role\": \"island\",\n";
  ASSERT_TRUE(absl::StrContains(text, role)) << text;
  std::ofstream(path) << absl::StrReplaceAll(text, {{role, ""}});
  EXPECT_TRUE(Enrolment::Open(parent_, "spring").ok());
  std::ofstream(path) << absl::StrReplaceAll(text, {{"island", "king"}});
  EXPECT_TRUE(absl::IsDataLoss(
      Enrolment::Read(parent_ + "/spring.abcdefghijkl").status()));
}

TEST_F(EnrolmentTest, RenewsOnlyACertificateThatIsDue) {
  auto made = Enrol();
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_TRUE(made->RenewIfDue(gate_.AsCall(), absl::Now()).ok());
  EXPECT_EQ(gate_.requests.size(), 1);
  ASSERT_TRUE(made->RenewIfDue(gate_.AsCall(), made->RenewalTime()).ok());
  EXPECT_EQ(gate_.requests.size(), 2);
}

}  // namespace
}  // namespace atl::cli
