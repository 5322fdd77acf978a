#include "base/rpc/certificates/x509.h"

#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <ctime>

#include "absl/strings/escaping.h"

namespace atl::rpc {
namespace {

Bio MakeBio(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// At least 112 bits of security, as OpenSSL's connections require here.
constexpr int kSecurityLevel = 2;

struct StoreFree {
  void operator()(X509_STORE_CTX* context) const {
    X509_STORE_CTX_free(context);
  }
  void operator()(STACK_OF(X509) * stack) const { sk_X509_free(stack); }
};

// Refuses keys with a password: a program cannot enter one.
int NoPassword(char*, int, int, void*) { return -1; }

}  // namespace

std::vector<Certificate> ReadCertificates(const std::string& pem) {
  std::vector<Certificate> certificates;
  const Bio bio = MakeBio(pem);
  while (X509* read =
             PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    certificates.emplace_back(read);
  }
  // The end of the text is an error to OpenSSL; gRPC must not find it.
  ERR_clear_error();
  return certificates;
}

Certificate ReadFirstCertificate(const std::string& pem) {
  Certificate certificate(
      PEM_read_bio_X509(MakeBio(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

absl::StatusOr<Certificate> FindCertificate(const std::string& pem) {
  Certificate certificate = ReadFirstCertificate(pem);
  if (certificate != nullptr) return certificate;
  return absl::InvalidArgumentError("holds no certificate");
}

PrivateKey ReadPrivateKey(const std::string& pem) {
  PrivateKey key(PEM_read_bio_PrivateKey(MakeBio(pem).get(), nullptr,
                                         NoPassword, nullptr));
  ERR_clear_error();
  return key;
}

std::string ToPem(X509& certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), &certificate);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

std::string ToPem(EVP_PKEY& key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PKCS8PrivateKey(bio.get(), &key, nullptr, nullptr, 0, nullptr,
                                nullptr);
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

std::string CommonNameOf(X509& certificate) {
  X509_NAME* const subject = X509_get_subject_name(&certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0 ||
      X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0) {
    return "";
  }
  unsigned char* utf8 = nullptr;
  const int size = ASN1_STRING_to_UTF8(
      &utf8, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  if (size < 0) return "";
  std::string name(reinterpret_cast<const char*>(utf8),
                   static_cast<size_t>(size));
  OPENSSL_free(utf8);
  return name;
}

TrustAnchors::TrustAnchors(const std::string& pem)
    : store_(X509_STORE_new(), X509_STORE_free) {
  if (store_ == nullptr) return;
  for (const Certificate& anchor : ReadCertificates(pem)) {
    X509_STORE_add_cert(store_.get(), anchor.get());
  }
  // An intermediate CA may be trusted by itself, as in gRPC's own check.
  X509_STORE_set_flags(store_.get(),
                       X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
}

absl::Status TrustAnchors::Verify(const std::vector<Certificate>& chain,
                                  int purpose,
                                  std::optional<absl::Time> time) const {
  const std::unique_ptr<X509_STORE_CTX, StoreFree> context(
      X509_STORE_CTX_new());
  // Borrows the certificates.
  const std::unique_ptr<STACK_OF(X509), StoreFree> others(sk_X509_new_null());
  if (store_ == nullptr || context == nullptr || others == nullptr) {
    return absl::InternalError("OpenSSL has no memory");
  }
  if (chain.empty()) return absl::UnauthenticatedError("no certificate");
  for (size_t i = 1; i < chain.size(); ++i) {
    sk_X509_push(others.get(), chain[i].get());
  }
  if (X509_STORE_CTX_init(context.get(), store_.get(), chain[0].get(),
                          others.get()) != 1) {
    return absl::InternalError("OpenSSL has no memory");
  }
  X509_VERIFY_PARAM* const rules = X509_STORE_CTX_get0_param(context.get());
  if (time.has_value()) {
    X509_VERIFY_PARAM_set_time(rules, absl::ToTimeT(*time));
  } else {
    X509_VERIFY_PARAM_set_flags(rules, X509_V_FLAG_NO_CHECK_TIME);
  }
  X509_VERIFY_PARAM_set_auth_level(rules, kSecurityLevel);
  if (X509_VERIFY_PARAM_set_purpose(rules, purpose) != 1) {
    return absl::InternalError("OpenSSL does not know the purpose");
  }
  const bool trusted = X509_verify_cert(context.get()) == 1;
  ERR_clear_error();
  if (trusted) return absl::OkStatus();
  return absl::UnauthenticatedError(X509_verify_cert_error_string(
      X509_STORE_CTX_get_error(context.get())));
}

absl::Status VerifyChain(const std::vector<Certificate>& chain,
                         const std::string& anchors_pem, int purpose,
                         std::optional<absl::Time> time) {
  return TrustAnchors(anchors_pem).Verify(chain, purpose, time);
}

std::string CertificateSha256(const std::string& pem) {
  const Certificate certificate = ReadFirstCertificate(pem);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (certificate == nullptr ||
      X509_digest(certificate.get(), EVP_sha256(), digest, &size) != 1) {
    return "";
  }
  return absl::BytesToHexString(
      {reinterpret_cast<const char*>(digest), size});
}

absl::Time ToTime(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

}  // namespace atl::rpc
