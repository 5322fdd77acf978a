#include "coordinator/gate/enrolled_certificate.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "base/identity/identity.h"
#include "base/rpc/certificates/authority.h"
#include "gtest/gtest.h"

namespace atl::coordinator {
namespace {

class EnrolledCertificateTest : public ::testing::Test {
 protected:
  EnrolledCertificateTest()
      : root_(rpc::MakeAuthority("root", now_ - absl::Hours(24 * 90),
                                 now_ + absl::Hours(24), 1)
                  .value()),
        island_ca_(MakeIslandCa()) {}

  rpc::KeyAndCertificate MakeIslandCa() const {
    return rpc::IssueAuthority(root_, {.common_name = "islands",
                                       .client_auth = true,
                                       .begin = now_ - absl::Hours(24 * 90),
                                       .end = now_ + absl::Hours(24)})
        .value();
  }

  rpc::CertificateSpec Spec() const {
    return {.common_name = "atoll:island:attic",
            .uris = {MakeEnrolledUri("c1", "u1", Role::kIsland, "attic")},
            .client_auth = true,
            .begin = now_ - absl::Hours(24 * 60),
            .end = now_ + absl::Hours(1)};
  }

  absl::StatusOr<EnrolledCertificate> Check(const rpc::CertificateSpec& spec) {
    return CheckEnrolledCertificate(
        rpc::IssueCertificate(island_ca_, spec).value().cert_pem,
        island_ca_.cert_pem, now_);
  }

  void ExpectRefused(const absl::Status& status, absl::string_view words) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), words)) << status;
  }

  const absl::Time now_ = absl::FromUnixSeconds(1'750'000'000);
  const rpc::KeyAndCertificate root_;
  const rpc::KeyAndCertificate island_ca_;
};

TEST_F(EnrolledCertificateTest, ReadsWhomItNames) {
  const rpc::KeyAndCertificate own =
      rpc::IssueCertificate(island_ca_, Spec()).value();
  const EnrolledCertificate enrolled =
      CheckEnrolledCertificate(own.cert_pem + island_ca_.cert_pem,
                               island_ca_.cert_pem, now_)
          .value();
  EXPECT_EQ(enrolled.identity.cluster_id(), "c1");
  EXPECT_EQ(enrolled.identity.run_uid(), "u1");
  EXPECT_EQ(enrolled.identity.role(), v1::ENROLLED_ROLE_ISLAND);
  EXPECT_EQ(enrolled.identity.name(), "attic");
  EXPECT_EQ(enrolled.key.sha256,
            rpc::ReadPublicKey(own.cert_pem).value().sha256);
}

TEST_F(EnrolledCertificateTest, AReaderIsRenewedToo) {
  rpc::CertificateSpec spec = Spec();
  spec.common_name = "atoll:reader:attic";
  spec.uris = {MakeEnrolledUri("c1", "u1", Role::kReader, "attic")};
  EXPECT_EQ(Check(spec).value().identity.role(), v1::ENROLLED_ROLE_READER);
}

TEST_F(EnrolledCertificateTest, AnExpiredOneIsRenewedFor30Days) {
  rpc::CertificateSpec spec = Spec();
  for (const absl::Duration age :
       {absl::Seconds(1), absl::Hours(24), kRenewableAfterEnd}) {
    spec.end = now_ - age;
    EXPECT_TRUE(Check(spec).ok()) << age << Check(spec).status();
  }
  spec.end = now_ - kRenewableAfterEnd - absl::Seconds(1);
  ExpectRefused(Check(spec).status(), "ask for a new join string");
}

TEST_F(EnrolledCertificateTest, OneThatIsNotValidYetIsRefused) {
  rpc::CertificateSpec spec = Spec();
  spec.begin = now_ + absl::Minutes(1);
  ExpectRefused(Check(spec).status(), "not yet valid");
}

TEST_F(EnrolledCertificateTest, NoneIsRefused) {
  ExpectRefused(
      CheckEnrolledCertificate("", island_ca_.cert_pem, now_).status(),
      "no certificate was shown");
}

TEST_F(EnrolledCertificateTest, OneOfAnotherCaIsRefusedExpiredOrNot) {
  const rpc::KeyAndCertificate other = MakeIslandCa();
  rpc::CertificateSpec spec = Spec();
  for (const absl::Time end : {now_ + absl::Hours(1), now_ - absl::Hours(1)}) {
    spec.end = end;
    const std::string cert_pem =
        rpc::IssueCertificate(other, spec).value().cert_pem;
    ExpectRefused(CheckEnrolledCertificate(cert_pem + other.cert_pem,
                                           island_ca_.cert_pem, now_)
                      .status(),
                  "does not vouch for it");
  }
}

TEST_F(EnrolledCertificateTest, OneThatNoGateMakesIsRefused) {
  rpc::CertificateSpec spec = Spec();
  spec.uris.clear();
  ExpectRefused(Check(spec).status(), "no gate made it");
  spec.uris = {MakeRunUri("spring", Role::kIsland, "attic")};
  ExpectRefused(Check(spec).status(), "no gate made it");
  spec.uris = {MakeEnrolledUri("c1", "u1", Role::kIsland, "cellar")};
  ExpectRefused(Check(spec).status(), "is for another role or name");
  spec.common_name = "attic";
  ExpectRefused(Check(spec).status(), "atoll:ROLE:ID");
  spec.common_name = "atoll:operator:attic";
  spec.uris = {MakeEnrolledUri("c1", "u1", Role::kOperator, "attic")};
  ExpectRefused(Check(spec).status(), "no gate made it");
  spec = Spec();
  spec.client_auth = false;
  ExpectRefused(Check(spec).status(), "it needs clientAuth");
}

}  // namespace
}  // namespace atl::coordinator
