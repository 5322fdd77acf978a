#include "base/rpc/certificates/certificate_request.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/x509.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

absl::StatusOr<PublicKey> ReadRequestOf(EVP_PKEY* made) {
  const PrivateKey key(made);
  return ReadCertificateRequest(MakeCertificateRequest(ToPem(*key)).value());
}

void ExpectRefused(const absl::StatusOr<PublicKey>& read,
                   absl::string_view words) {
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(read.status().message(), words))
      << read.status();
}

TEST(CertificateRequestTest, ReadsTheKeyOfWhatItMakes) {
  const KeyAndRequest made = MakeKeyAndRequest().value();
  const PublicKey key = ReadCertificateRequest(made.request_der).value();
  EXPECT_EQ(key.der, ToPublicKey(*ReadPrivateKey(made.key_pem)).value().der);
  EXPECT_EQ(key.sha256.size(), 32);
}

TEST(CertificateRequestTest, TheCertificateHasTheKeyOfTheRequest) {
  const KeyAndRequest made = MakeKeyAndRequest().value();
  const PublicKey key = ReadCertificateRequest(made.request_der).value();
  const absl::Time now = absl::Now();
  const KeyAndCertificate authority =
      MakeAuthority("a", now - absl::Hours(1), now + absl::Hours(1)).value();
  const std::string cert_pem =
      IssueCertificateForKey(authority,
                             {.common_name = "x",
                              .client_auth = true,
                              .begin = now - absl::Hours(1),
                              .end = now + absl::Hours(1)},
                             key.der)
          .value();
  EXPECT_EQ(ReadPublicKey(cert_pem).value().sha256, key.sha256);
}

TEST(CertificateRequestTest, AllowsTheseKindsOfKeys) {
  for (const char* curve : {"P-256", "P-384"}) {
    EXPECT_TRUE(ReadRequestOf(EVP_EC_gen(curve)).ok()) << curve;
  }
  EXPECT_TRUE(
      ReadRequestOf(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")).ok());
  EXPECT_TRUE(ReadRequestOf(EVP_RSA_gen(2048)).ok());
}

TEST(CertificateRequestTest, RefusesOtherKindsOfKeys) {
  constexpr char kWords[] = "of a kind that is not allowed";
  ExpectRefused(ReadRequestOf(EVP_EC_gen("secp256k1")), kWords);
  ExpectRefused(ReadRequestOf(EVP_EC_gen("P-521")), kWords);
  ExpectRefused(ReadRequestOf(EVP_RSA_gen(1024)), kWords);
}

TEST(CertificateRequestTest, RefusesACurveThatIsWrittenOut) {
  EVP_PKEY* const key = EVP_EC_gen("P-256");
  ASSERT_EQ(EVP_PKEY_set_utf8_string_param(key, "encoding", "explicit"), 1);
  ExpectRefused(ReadRequestOf(key), "of a kind that is not allowed");
}

TEST(CertificateRequestTest, RefusesAWrongSignature) {
  std::string der = MakeKeyAndRequest().value().request_der;
  // In the second number of the signature.
  der.back() ^= 1;
  ExpectRefused(ReadCertificateRequest(der), "signature is wrong");
}

TEST(CertificateRequestTest, RefusesWhatIsNoRequest) {
  const std::string der = MakeKeyAndRequest().value().request_der;
  ExpectRefused(ReadCertificateRequest(""), "not a PKCS #10 request");
  ExpectRefused(ReadCertificateRequest("-----BEGIN"), "not a PKCS #10 request");
  ExpectRefused(ReadCertificateRequest(der + "x"), "not a PKCS #10 request");
}

TEST(CertificateRequestTest, NoDamagedRequestIsRead) {
  const std::string der = MakeKeyAndRequest().value().request_der;
  for (size_t i = 0; i < der.size(); ++i) {
    std::string damaged = der;
    damaged[i] = static_cast<char>(damaged[i] + 1);
    EXPECT_FALSE(ReadCertificateRequest(damaged).ok()) << i;
    EXPECT_FALSE(ReadCertificateRequest(der.substr(0, i)).ok()) << i;
  }
}

}  // namespace
}  // namespace atl::rpc
