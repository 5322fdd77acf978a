#include "base/rpc/certificates/authority.h"

#include <openssl/x509v3.h>

#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/certificates/x509.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

class AuthorityTest : public ::testing::Test {
 protected:
  AuthorityTest()
      : now_(absl::FromUnixSeconds(1'800'000'000)),
        authority_(
            MakeAuthority("ours", now_, now_ + absl::Hours(48)).value()) {}

  CertificateSpec Spec() const {
    return {.common_name = "atoll:server:s",
            .hosts = {"s.example.org", "192.0.2.7"},
            .server_auth = true,
            .client_auth = true,
            .begin = now_,
            .end = now_ + absl::Hours(24)};
  }

  const absl::Time now_;
  const KeyAndCertificate authority_;
};

TEST_F(AuthorityTest, MakesACaThatSignsNoOtherCa) {
  const Certificate ca = ReadFirstCertificate(authority_.cert_pem);
  ASSERT_NE(ca, nullptr);
  EXPECT_EQ(X509_check_ca(ca.get()), 1);
  EXPECT_EQ(X509_get_pathlen(ca.get()), 0);
  EXPECT_EQ(X509_get_key_usage(ca.get()),
            uint32_t{KU_KEY_CERT_SIGN | KU_CRL_SIGN});
  EXPECT_TRUE(CheckKey(authority_.cert_pem, authority_.key_pem).ok());
}

TEST_F(AuthorityTest, IssuesWhatTheSpecSays) {
  const auto issued = IssueCertificate(authority_, Spec());
  ASSERT_TRUE(issued.ok()) << issued.status();
  EXPECT_TRUE(CheckKey(issued->cert_pem, issued->key_pem).ok());
  const Certificate leaf = ReadFirstCertificate(issued->cert_pem);
  EXPECT_EQ(CommonNameOf(*leaf), "atoll:server:s");
  EXPECT_EQ(X509_check_ca(leaf.get()), 0);
  EXPECT_EQ(X509_get_key_usage(leaf.get()), uint32_t{KU_DIGITAL_SIGNATURE});
  EXPECT_EQ(X509_get_extended_key_usage(leaf.get()),
            uint32_t{XKU_SSL_SERVER | XKU_SSL_CLIENT});
  EXPECT_EQ(X509_check_ip_asc(leaf.get(), "192.0.2.7", 0), 1);
  EXPECT_EQ(X509_check_host(leaf.get(), "s.example.org", 0, 0, nullptr), 1);
  EXPECT_EQ(ToTime(X509_get0_notAfter(leaf.get())), now_ + absl::Hours(24));
  EXPECT_EQ(EVP_PKEY_get_bits(X509_get0_pubkey(leaf.get())), 256);
}

TEST_F(AuthorityTest, NoCertificateOutlivesItsAuthority) {
  CertificateSpec spec = Spec();
  spec.end = now_ + absl::Hours(480);
  const auto issued = IssueCertificate(authority_, spec);
  ASSERT_TRUE(issued.ok());
  EXPECT_EQ(ToTime(X509_get0_notAfter(
                ReadFirstCertificate(issued->cert_pem).get())),
            now_ + absl::Hours(48));
}

TEST_F(AuthorityTest, EverySerialNumberAndKeyIsNew) {
  const auto one = IssueCertificate(authority_, Spec());
  const auto two = IssueCertificate(authority_, Spec());
  EXPECT_NE(one->key_pem, two->key_pem);
  const Certificate a = ReadFirstCertificate(one->cert_pem);
  const Certificate b = ReadFirstCertificate(two->cert_pem);
  EXPECT_NE(ASN1_INTEGER_cmp(X509_get_serialNumber(a.get()),
                             X509_get_serialNumber(b.get())),
            0);
}

TEST_F(AuthorityTest, RefusesNamesThatX509CannotHold) {
  CertificateSpec spec = Spec();
  spec.common_name = std::string(65, 'a');
  const absl::Status status = IssueCertificate(authority_, spec).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "shorter id")) << status;
}

TEST_F(AuthorityTest, TellsHostsFromOtherText) {
  for (const char* host :
       {"a", "s-0.s.ns.svc.cluster.local", "192.0.2.7", "::1", "2001:db8::7"}) {
    EXPECT_TRUE(CheckCertificateHost(host).ok()) << host;
  }
  for (const char* host :
       {"", "a:7400", "a..b", "-a", "a b", "a,DNS:evil.example", "192.0.2.256",
        "*.example.org", "a/b", "a.", "1.2.3"}) {
    EXPECT_FALSE(CheckCertificateHost(host).ok()) << host;
  }
}

TEST_F(AuthorityTest, NeedsTheKeyOfItsOwnCertificate) {
  const auto other = MakeAuthority("ours", now_, now_ + absl::Hours(1));
  EXPECT_EQ(IssueCertificate({other->key_pem, authority_.cert_pem}, Spec())
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace atl::rpc
