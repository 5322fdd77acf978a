#include "base/rpc/certificates/authority.h"

#include <openssl/ec.h>
#include <openssl/rsa.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/certificates/x509.h"
#include "gtest/gtest.h"

namespace atl::rpc {
namespace {

struct Free {
  void operator()(X509_STORE* store) const { X509_STORE_free(store); }
  void operator()(X509_STORE_CTX* context) const {
    X509_STORE_CTX_free(context);
  }
  void operator()(STACK_OF(X509) * stack) const { sk_X509_free(stack); }
};

// The public key, as IssueCertificateForKey takes it.
std::string ToDer(EVP_PKEY* key) {
  unsigned char* bytes = nullptr;
  const int size = i2d_PUBKEY(key, &bytes);
  std::string der(reinterpret_cast<char*>(bytes), static_cast<size_t>(size));
  OPENSSL_free(bytes);
  return der;
}

// OpenSSL's answer for the first certificate of `chain_pem`, for one who
// trusts `trusted_pem` alone; strict, as `openssl verify -x509_strict`.
int Verify(const std::string& chain_pem, const std::string& trusted_pem,
           int purpose, absl::Time now) {
  const std::vector<Certificate> chain = ReadCertificates(chain_pem);
  const Certificate trusted = ReadFirstCertificate(trusted_pem);
  const std::unique_ptr<X509_STORE, Free> store(X509_STORE_new());
  const std::unique_ptr<X509_STORE_CTX, Free> context(X509_STORE_CTX_new());
  const std::unique_ptr<STACK_OF(X509), Free> others(sk_X509_new_null());
  X509_STORE_add_cert(store.get(), trusted.get());
  X509_STORE_set_flags(store.get(),
                       X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_X509_STRICT);
  for (const Certificate& each : chain) sk_X509_push(others.get(), each.get());
  X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(), others.get());
  X509_VERIFY_PARAM* const rules = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_time(rules, absl::ToTimeT(now));
  X509_VERIFY_PARAM_set_purpose(rules, purpose);
  return X509_verify_cert(context.get()) == 1
             ? X509_V_OK
             : X509_STORE_CTX_get_error(context.get());
}

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

  // The status of a certificate for the public half of `key`.
  absl::Status ForKey(EVP_PKEY* owned) const {
    const PrivateKey key(owned);
    return IssueCertificateForKey(authority_, Spec(), ToDer(key.get()))
        .status();
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
  EXPECT_EQ(
      ToTime(X509_get0_notAfter(ReadFirstCertificate(issued->cert_pem).get())),
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

TEST_F(AuthorityTest, PutsUrisIntoACertificateWithoutReadingThem) {
  CertificateSpec spec = Spec();
  spec.hosts.clear();
  spec.uris = {"atoll:///run/spring/island/a",
               "atoll:///a,DNS:evil.example,email:\"x\""};
  const auto issued = IssueCertificate(authority_, spec);
  ASSERT_TRUE(issued.ok()) << issued.status();
  EXPECT_EQ(ReadFacts(issued->cert_pem)->uris, spec.uris);
  for (const char* uri : {"", "a b", "a\nb", "\xc3\xa4"}) {
    spec.uris = {uri};
    EXPECT_EQ(IssueCertificate(authority_, spec).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(AuthorityTest, UsesTheGivenSerialNumber) {
  CertificateSpec spec = Spec();
  spec.serial = "\xff" + std::string(14, 'a') + "\x01";
  const auto issued = IssueCertificate(authority_, spec);
  ASSERT_TRUE(issued.ok()) << issued.status();
  const Certificate leaf = ReadFirstCertificate(issued->cert_pem);
  const ASN1_INTEGER* const serial = X509_get0_serialNumber(leaf.get());
  EXPECT_EQ(serial->type, V_ASN1_INTEGER);  // Not a negative one.
  EXPECT_EQ(
      std::string(reinterpret_cast<const char*>(ASN1_STRING_get0_data(serial)),
                  static_cast<size_t>(ASN1_STRING_length(serial))),
      spec.serial);
  for (const size_t size : {1, 15, 17}) {
    spec.serial = std::string(size, 'a');
    EXPECT_FALSE(IssueCertificate(authority_, spec).ok()) << size;
  }
  spec.serial = std::string(16, '\0');
  EXPECT_FALSE(IssueCertificate(authority_, spec).ok());
}

TEST_F(AuthorityTest, IssuesForAKeyThatAnotherHolds) {
  const PrivateKey key(EVP_EC_gen("P-384"));
  const auto issued =
      IssueCertificateForKey(authority_, Spec(), ToDer(key.get()));
  ASSERT_TRUE(issued.ok()) << issued.status();
  const Certificate leaf = ReadFirstCertificate(*issued);
  EXPECT_EQ(EVP_PKEY_eq(X509_get0_pubkey(leaf.get()), key.get()), 1);
  EXPECT_EQ(CommonNameOf(*leaf), "atoll:server:s");
  EXPECT_EQ(Verify(*issued, authority_.cert_pem, X509_PURPOSE_SSL_SERVER, now_),
            X509_V_OK);
}

TEST_F(AuthorityTest, TakesKeysThatAreLongEnough) {
  EXPECT_TRUE(ForKey(EVP_EC_gen("P-256")).ok());
  EXPECT_TRUE(ForKey(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")).ok());
  EXPECT_TRUE(ForKey(EVP_RSA_gen(2048)).ok());
  const PrivateKey spelt_out(EVP_EC_gen("P-256"));
  EVP_PKEY_set_utf8_string_param(spelt_out.get(), "encoding", "explicit");
  EVP_PKEY_up_ref(spelt_out.get());
  for (EVP_PKEY* const key :
       {EVP_RSA_gen(1024), EVP_EC_gen("P-521"), EVP_EC_gen("secp256k1"),
        EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519"), spelt_out.get()}) {
    EXPECT_EQ(ForKey(key).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(AuthorityTest, RefusesBytesThatAreNoKey) {
  const PrivateKey key(EVP_EC_gen("P-256"));
  const std::string der = ToDer(key.get());
  std::string off_curve = der;
  off_curve.back() = static_cast<char>(off_curve.back() ^ 1);
  for (const std::string& bytes : {std::string(), std::string("key"), der + "x",
                                   der.substr(0, der.size() - 1), off_curve}) {
    EXPECT_EQ(IssueCertificateForKey(authority_, Spec(), bytes).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(AuthorityTest, ReissuesWithTheSameKeyNamesAndUses) {
  CertificateSpec spec = Spec();
  spec.uris = {"atoll:///any/server/s"};
  const auto old = IssueCertificate(authority_, spec);
  const absl::Time later = now_ + absl::Hours(30);  // It has expired.
  const auto renewed = ReissueCertificate(authority_, old->cert_pem, later,
                                          later + absl::Hours(99));
  ASSERT_TRUE(renewed.ok()) << renewed.status();
  EXPECT_TRUE(CheckKey(*renewed, old->key_pem).ok());
  EXPECT_EQ(
      Verify(*renewed, authority_.cert_pem, X509_PURPOSE_SSL_SERVER, later),
      X509_V_OK);
  const Certificate a = ReadFirstCertificate(old->cert_pem);
  const Certificate b = ReadFirstCertificate(*renewed);
  EXPECT_EQ(ToTime(X509_get0_notAfter(b.get())), now_ + absl::Hours(48));
  EXPECT_NE(ASN1_INTEGER_cmp(X509_get0_serialNumber(a.get()),
                             X509_get0_serialNumber(b.get())),
            0);
  ASSERT_EQ(X509_get_ext_count(a.get()), X509_get_ext_count(b.get()));
  for (int i = 0; i < X509_get_ext_count(a.get()); ++i) {
    EXPECT_EQ(ASN1_OCTET_STRING_cmp(
                  X509_EXTENSION_get_data(X509_get_ext(a.get(), i)),
                  X509_EXTENSION_get_data(X509_get_ext(b.get(), i))),
              0);
  }
}

TEST_F(AuthorityTest, ReissuesNothingThatItDidNotSign) {
  const auto other = MakeAuthority("ours", now_, now_ + absl::Hours(48));
  const auto foreign = IssueCertificate(*other, Spec());
  // Its owner changed its name, which breaks only the signature.
  const auto own = IssueCertificate(authority_, Spec());
  const Certificate forged = ReadFirstCertificate(own->cert_pem);
  const Certificate ca = ReadFirstCertificate(authority_.cert_pem);
  X509_set_subject_name(forged.get(), X509_get_subject_name(ca.get()));
  i2d_re_X509_tbs(forged.get(), nullptr);  // Else the old bytes stay.
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), forged.get());
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  const std::string forged_pem(bytes, static_cast<size_t>(size));
  EXPECT_NE(forged_pem, own->cert_pem);
  for (const std::string& pem :
       {foreign->cert_pem, forged_pem, std::string()}) {
    EXPECT_EQ(ReissueCertificate(authority_, pem, now_, now_).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

class AuthorityTreeTest : public AuthorityTest {
 protected:
  AuthorityTreeTest()
      : root_(MakeAuthority("root", now_, now_ + absl::Hours(48), 1).value()),
        service_(IssueAuthority(root_, CaSpec("service CA", false)).value()),
        island_(IssueAuthority(root_, CaSpec("island CA", true)).value()) {}

  CertificateSpec CaSpec(const std::string& name, bool clients_only) const {
    CertificateSpec spec;
    spec.common_name = name;
    spec.client_auth = clients_only;
    spec.begin = now_;
    spec.end = now_ + absl::Hours(48);
    return spec;
  }

  // OpenSSL's answer for a certificate for both uses that `ca` signs.
  int VerifyIssued(const KeyAndCertificate& ca, int purpose,
                   const std::string& trusted_pem) const {
    return Verify(
        IssueCertificate(ca, Spec())->cert_pem + ca.cert_pem + root_.cert_pem,
        trusted_pem, purpose, now_);
  }

  const KeyAndCertificate root_;
  const KeyAndCertificate service_;
  const KeyAndCertificate island_;
};

TEST_F(AuthorityTreeTest, OnlyTheRootSignsCas) {
  const auto pathlen = [](const KeyAndCertificate& ca) {
    return X509_get_pathlen(ReadFirstCertificate(ca.cert_pem).get());
  };
  EXPECT_EQ(pathlen(root_), 1);
  EXPECT_EQ(pathlen(service_), 0);
  EXPECT_EQ(pathlen(island_), 0);
  EXPECT_EQ(IssueAuthority(island_, CaSpec("x", false)).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(AuthorityTreeTest, TheIslandCaMakesClientsButNoServers) {
  for (const std::string& trusted : {root_.cert_pem, island_.cert_pem}) {
    EXPECT_EQ(VerifyIssued(island_, X509_PURPOSE_SSL_CLIENT, trusted),
              X509_V_OK);
    EXPECT_EQ(VerifyIssued(island_, X509_PURPOSE_SSL_SERVER, trusted),
              X509_V_ERR_INVALID_PURPOSE);
  }
}

TEST_F(AuthorityTreeTest, TheServiceCaMakesBoth) {
  for (const std::string& trusted : {root_.cert_pem, service_.cert_pem}) {
    for (const int purpose :
         {X509_PURPOSE_SSL_CLIENT, X509_PURPOSE_SSL_SERVER}) {
      EXPECT_EQ(VerifyIssued(service_, purpose, trusted), X509_V_OK);
    }
  }
}

TEST_F(AuthorityTreeTest, WhoTrustsTheServiceCaTrustsNoIslandCa) {
  EXPECT_NE(VerifyIssued(island_, X509_PURPOSE_SSL_CLIENT, service_.cert_pem),
            X509_V_OK);
}

TEST_F(AuthorityTreeTest, RenewedCasStandAboveTheSameCertificates) {
  const absl::Time later = now_ + absl::Hours(40);
  const auto root = ReissueCertificate(root_, root_.cert_pem, later,
                                       later + absl::Hours(999));
  ASSERT_TRUE(root.ok()) << root.status();
  const auto service =
      ReissueCertificate({root_.key_pem, *root}, service_.cert_pem, later,
                         later + absl::Hours(999));
  ASSERT_TRUE(service.ok()) << service.status();
  CertificateSpec spec = Spec();
  spec.end = now_ + absl::Hours(48);
  const auto leaf = IssueCertificate(service_, spec);
  EXPECT_EQ(
      Verify(leaf->cert_pem + *service, *root, X509_PURPOSE_SSL_SERVER, later),
      X509_V_OK);
  EXPECT_EQ(ToTime(X509_get0_notAfter(ReadFirstCertificate(*service).get())),
            later + absl::Hours(999));
}

}  // namespace
}  // namespace atl::rpc
