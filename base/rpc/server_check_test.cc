#include "base/rpc/server_check.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/rpc/certificates/authority.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

class ServerCheckTest : public ::testing::Test {
 protected:
  ServerCheckTest()
      : now_(absl::Now()),
        authority_(MakeAuthority("ours", now_ - absl::Hours(1),
                                 now_ + absl::Hours(1))
                       .value()) {}

  CertificateSpec Spec() const {
    return {.common_name = "atoll:coordinator:c",
            .hosts = {"c.example.org", "192.0.2.7", "2001:db8::7"},
            .server_auth = true,
            .client_auth = false,
            .begin = now_ - absl::Minutes(5),
            .end = now_ + absl::Minutes(5)};
  }

  absl::Status Check(const CertificateSpec& spec,
                     const std::string& host = "c.example.org") const {
    return CheckServerCertificate(
        IssueCertificate(authority_, spec).value().cert_pem,
        authority_.cert_pem, {host, 7400}, Role::kCoordinator, now_);
  }

  void ExpectRefused(const absl::Status& status, absl::string_view words) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), words)) << status;
    EXPECT_TRUE(absl::StartsWith(status.message(), kServerCheckPrefix));
  }

  const absl::Time now_;
  const KeyAndCertificate authority_;
};

TEST_F(ServerCheckTest, AcceptsEveryHostThatTheCertificateLists) {
  for (const char* host :
       {"c.example.org", "C.example.org.", "192.0.2.7", "2001:db8::7"}) {
    EXPECT_TRUE(Check(Spec(), host).ok()) << Check(Spec(), host);
  }
}

TEST_F(ServerCheckTest, RefusesAnotherHost) {
  ExpectRefused(Check(Spec(), "d.example.org"),
                "the certificate of d.example.org:7400 (atoll:coordinator:c) "
                "is not for the host d.example.org");
  ExpectRefused(Check(Spec(), "example.org."), "--host example.org");
  ExpectRefused(Check(Spec(), "192.0.2.8"), "is not for the host 192.0.2.8");
}

TEST_F(ServerCheckTest, AHostNameInTheCommonNameCountsForNothing) {
  CertificateSpec spec = Spec();
  spec.common_name = "c.example.org";
  spec.hosts.clear();
  ExpectRefused(Check(spec), "is not for the host");
}

TEST_F(ServerCheckTest, AStrangersNameCannotWriteALineOfTheMessage) {
  const KeyAndCertificate stranger =
      MakeAuthority("s", now_ - absl::Hours(1), now_ + absl::Hours(1)).value();
  CertificateSpec spec = Spec();
  spec.common_name = "x\n\x1b[2Jok";
  const absl::Status status = CheckServerCertificate(
      IssueCertificate(stranger, spec).value().cert_pem, authority_.cert_pem,
      {"c.example.org", 7400}, Role::kCoordinator, now_);
  ExpectRefused(status, "(x\\n\\x1b[2Jok) is refused");
  EXPECT_FALSE(absl::StrContains(status.message(), '\n'));
}

TEST_F(ServerCheckTest, RefusesAnotherRoleWithTheRightHost) {
  for (const char* role : {"island", "server", "operator", "reader"}) {
    CertificateSpec spec = Spec();
    spec.common_name = std::string("atoll:") + role + ":x";
    ExpectRefused(Check(spec), "is atoll:" + std::string(role) +
                                   ":x, not a coordinator's");
  }
  CertificateSpec spec = Spec();
  spec.common_name = "c";
  ExpectRefused(Check(spec), "atoll:ROLE:ID");
}

TEST_F(ServerCheckTest, RefusesACertificateThatMayNotServe) {
  CertificateSpec spec = Spec();
  spec.server_auth = false;
  ExpectRefused(Check(spec), "has no extended key usage; it needs serverAuth");
  spec.client_auth = true;
  ExpectRefused(Check(spec), "another extended key usage");
}

TEST_F(ServerCheckTest, RefusesWhatIsExpiredOrNotYetValid) {
  CertificateSpec spec = Spec();
  spec.end = now_ - absl::Minutes(1);
  ExpectRefused(Check(spec), "expired at ");
  spec = Spec();
  spec.begin = now_ + absl::Minutes(1);
  ExpectRefused(Check(spec), "valid from ");
}

TEST_F(ServerCheckTest, RefusesWhatAnotherAuthoritySigned) {
  // It has the same name, so that only the signature tells.
  const auto other =
      MakeAuthority("ours", now_ - absl::Hours(1), now_ + absl::Hours(1));
  ExpectRefused(
      CheckServerCertificate(IssueCertificate(*other, Spec())->cert_pem,
                             authority_.cert_pem, {"c.example.org", 7400},
                             Role::kCoordinator, now_),
      "--tls-ca did not sign it");
  // A chain that brings its own root proves nothing.
  ExpectRefused(
      CheckServerCertificate(
          IssueCertificate(*other, Spec())->cert_pem + other->cert_pem,
          authority_.cert_pem, {"c.example.org", 7400}, Role::kCoordinator,
          now_),
      "--tls-ca did not sign it");
}

TEST_F(ServerCheckTest, RefusesWhatAnIssuedCertificateSigned) {
  // An island's owner has a key and a certificate of our CA.
  CertificateSpec island = Spec();
  island.common_name = "atoll:island:x";
  const auto leaf = IssueCertificate(authority_, island);
  ASSERT_TRUE(leaf.ok());
  EXPECT_EQ(IssueCertificate(*leaf, Spec()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(ServerCheckTest, RefusesAPeerWithoutACertificate) {
  ExpectRefused(
      CheckServerCertificate("", authority_.cert_pem, {"c.example.org", 7400},
                             Role::kCoordinator, now_),
      "is missing");
}

}  // namespace
}  // namespace atl::rpc
