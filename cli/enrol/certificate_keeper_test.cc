#include "cli/enrol/certificate_keeper.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "cli/enrol/testing/fake_gate.h"
#include "gtest/gtest.h"

namespace atl::cli {
namespace {

// A reader's enrolment, whose certificate lives from 5 minutes ago until
// `end_`.
class CertificateKeeperTest : public ::testing::Test {
 protected:
  CertificateKeeperTest()
      : parent_(
            ::testing::TempDir() + "/keeper_" +
            ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(parent_);
  }

  Enrolment Enrol(absl::Duration life) {
    gate_.end = now_ + life;
    return Enrolment::Enrol(parent_,
                            {"gate.example.org:7402", "spring", "abcdefghijkl",
                             std::string(32, 's'), gate_.pin()},
                            v1::ENROLLED_ROLE_READER, "", gate_.AsCall(), now_)
        .value();
  }

  absl::Status Prepare(const std::string& cert_path, absl::Time now) {
    CertificateKeeper keeper(cert_path, gate_.AsCall(), messages_);
    return keeper.Prepare(now, {});
  }

  const absl::Time now_ = absl::Now();
  const std::string parent_;
  FakeGate gate_;
  std::ostringstream messages_;
};

TEST_F(CertificateKeeperTest, RenewsAtTwoThirdsAndNotBefore) {
  const Enrolment reader = Enrol(absl::Hours(24));
  const std::string cert = reader.tls_files().cert;
  ASSERT_TRUE(Prepare(cert, now_ + absl::Hours(15)).ok());
  EXPECT_EQ(gate_.requests.size(), 1);
  EXPECT_EQ(messages_.str(), "");
  gate_.end = now_ + absl::Hours(48);
  ASSERT_TRUE(Prepare(cert, now_ + absl::Hours(17)).ok());
  ASSERT_EQ(gate_.requests.size(), 2);
  EXPECT_TRUE(gate_.requests[1].has_renew());
  EXPECT_GT(reader.EndTime(), now_ + absl::Hours(47));
  EXPECT_TRUE(absl::StrContains(messages_.str(), "gate.example.org:7402"));
}

TEST_F(CertificateKeeperTest, AClientMoreAsksNoGateAgain) {
  const Enrolment reader = Enrol(absl::Hours(24));
  CertificateKeeper keeper(reader.tls_files().cert, gate_.AsCall(), messages_);
  gate_.end = now_ + absl::Hours(48);
  ASSERT_TRUE(keeper.Prepare(now_ + absl::Hours(17), {}).ok());
  ASSERT_TRUE(keeper.Prepare(now_ + absl::Hours(47), {}).ok());
  EXPECT_EQ(gate_.requests.size(), 2);
}

TEST_F(CertificateKeeperTest, AGateThatIsAwayMattersOnlyAfterTheEnd) {
  const std::string cert = Enrol(absl::Hours(24)).tls_files().cert;
  gate_.error = absl::UnavailableError("away");
  EXPECT_TRUE(Prepare(cert, now_ + absl::Hours(23)).ok());
  EXPECT_EQ(gate_.requests.size(), 2);
  const absl::Status expired = Prepare(cert, now_ + absl::Hours(25));
  EXPECT_TRUE(absl::IsUnavailable(expired)) << expired;
  EXPECT_TRUE(absl::StrContains(expired.message(), "expired")) << expired;
  EXPECT_TRUE(absl::StrContains(expired.message(), "away")) << expired;
}

TEST_F(CertificateKeeperTest, LeavesOtherCertificatesAlone) {
  const Enrolment reader = Enrol(absl::Hours(24));
  const absl::Time late = now_ + absl::Hours(25);
  const std::string other = parent_ + "/other";
  std::filesystem::create_directories(other);
  std::filesystem::copy(reader.tls_files().cert, other);
  for (const std::string& path :
       {std::string(), other + "/tls.crt", std::string("tls.crt"),
        reader.tls_files().ca}) {
    EXPECT_TRUE(Prepare(path, late).ok()) << path;
  }
  EXPECT_EQ(gate_.requests.size(), 1);
}

TEST_F(CertificateKeeperTest, NamesADamagedEnrolment) {
  const Enrolment reader = Enrol(absl::Hours(24));
  const std::string cert = reader.tls_files().cert;
  std::ofstream(cert).close();  // Empty.
  const absl::Status damaged = Prepare(cert, now_);
  EXPECT_TRUE(absl::StartsWith(damaged.message(), cert)) << damaged;
  std::ofstream(parent_ + "/spring.abcdefghijkl/enrolment.json") << "{";
  EXPECT_TRUE(absl::IsDataLoss(Prepare(reader.tls_files().cert, now_)));
}

}  // namespace
}  // namespace atl::cli
