#include "base/rpc/certificates/public_key.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "base/rpc/certificates/authority.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

class PublicKeyTest : public ::testing::Test {
 protected:
  PublicKeyTest()
      : root_(
            MakeAuthority("root", now_ - absl::Hours(1), now_ + absl::Hours(1))
                .value()),
        leaf_(IssueCertificate(root_, {.common_name = "leaf",
                                       .server_auth = true,
                                       .begin = now_ - absl::Hours(1),
                                       .end = now_ + absl::Hours(1)})
                  .value()) {}

  const absl::Time now_ = absl::Now();
  const KeyAndCertificate root_;
  const KeyAndCertificate leaf_;
};

TEST_F(PublicKeyTest, ThePinOfAKnownKey) {
  // `openssl x509 -pubkey -noout | openssl pkey -pubin -outform DER |
  // openssl dgst -sha256`, for this key.
  constexpr char kCertificate[] = R"(-----BEGIN CERTIFICATE-----
MIIBODCB66ADAgECAhRpE5gyRyuH+WWZj9KT6aYUcU3cATAFBgMrZXAwETEPMA0G
A1UEAwwGcGlubmVkMCAXDTI2MTEyNjA0MTkzM1oYDzIxMjYxMTAyMDQxOTMzWjAR
MQ8wDQYDVQQDDAZwaW5uZWQwKjAFBgMrZXADIQCW4otO9XiVBq/bAcROXGZNvgHa
s0yalsTSKm7MsIdBbaNTMFEwHQYDVR0OBBYEFL6+r8OB+aEW2P0Uro8dW6uo156Q
MB8GA1UdIwQYMBaAFL6+r8OB+aEW2P0Uro8dW6uo156QMA8GA1UdEwEB/wQFMAMB
Af8wBQYDK2VwA0EAaz8RGNkEzTSauVl6NeK/a1wl9E8LPPm6F6/pMx46ihUexXrH
Mv8229sBNA8ReY08Fc9GotoZrzjhYxdi8+bhAw==
-----END CERTIFICATE-----
)";
  const PublicKey key = ReadPublicKey(kCertificate).value();
  EXPECT_EQ(absl::BytesToHexString(key.sha256),
            "faab70749847dfdae7f549e9f317a81d99ca92204f9166a322aa1e4dc20444a2");
  EXPECT_EQ(ToPin(key), "-qtwdJhH39rn9Unp8xeoHZnKkiBPkWajIqoeTcIERKI");
}

TEST_F(PublicKeyTest, ThePinIsTheKeysAndNotTheCertificates) {
  const std::string again =
      ReissueCertificate(root_, root_.cert_pem, now_, now_ + absl::Hours(2))
          .value();
  EXPECT_NE(again, root_.cert_pem);
  EXPECT_EQ(ToPin(ReadPublicKey(again).value()),
            ToPin(ReadPublicKey(root_.cert_pem).value()));
  EXPECT_NE(ToPin(ReadPublicKey(leaf_.cert_pem).value()),
            ToPin(ReadPublicKey(root_.cert_pem).value()));
}

TEST_F(PublicKeyTest, FindsThePinnedCertificateInAChain) {
  const std::string chain = leaf_.cert_pem + root_.cert_pem;
  const std::string pin = ToPin(ReadPublicKey(root_.cert_pem).value());
  EXPECT_EQ(FindPinned(chain, pin).value(), root_.cert_pem);
  for (const std::string& other : {leaf_.cert_pem, std::string()}) {
    EXPECT_EQ(FindPinned(other, pin).status().code(),
              absl::StatusCode::kNotFound);
  }
}

TEST_F(PublicKeyTest, TheRootIsTheLastCertificateAndSignsItself) {
  EXPECT_EQ(FindRoot(leaf_.cert_pem + root_.cert_pem).value(), root_.cert_pem);
  for (const std::string& chain :
       {std::string(), leaf_.cert_pem, root_.cert_pem + leaf_.cert_pem}) {
    EXPECT_EQ(FindRoot(chain).status().code(), absl::StatusCode::kNotFound);
  }
}

}  // namespace
}  // namespace atl::rpc
