#include "base/rpc/certificates/revocation_list.h"

#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/rpc/certificates/x509.h"
#include "base/status/status_macros.h"

namespace atl::rpc {
namespace {

struct CrlFree {
  void operator()(X509_CRL* list) const { X509_CRL_free(list); }
  void operator()(BIGNUM* number) const { BN_free(number); }
};

std::string ToHex(const ASN1_INTEGER* number) {
  const std::unique_ptr<BIGNUM, CrlFree> value(
      ASN1_INTEGER_to_BN(number, nullptr));
  char* const text = value == nullptr ? nullptr : BN_bn2hex(value.get());
  std::string hex = text == nullptr ? "" : absl::AsciiStrToLower(text);
  OPENSSL_free(text);
  return hex;
}

std::string NameOf(X509_NAME* name) {
  unsigned char* der = nullptr;
  const int size = i2d_X509_NAME(name, &der);
  std::string bytes(reinterpret_cast<const char*>(der),
                    static_cast<size_t>(std::max(size, 0)));
  OPENSSL_free(der);
  return bytes;
}

bool IsSignedBy(X509_CRL& list, const std::vector<Certificate>& authorities) {
  return std::any_of(
      authorities.begin(), authorities.end(), [&](const Certificate& ca) {
        return X509_NAME_cmp(X509_CRL_get_issuer(&list),
                             X509_get_subject_name(ca.get())) == 0 &&
               X509_CRL_verify(&list, X509_get0_pubkey(ca.get())) == 1;
      });
}

}  // namespace

absl::StatusOr<std::string> ReadSerial(const std::string& cert_pem) {
  ASSIGN_OR_RETURN(const Certificate certificate, FindCertificate(cert_pem));
  return ToHex(X509_get0_serialNumber(certificate.get()));
}

absl::StatusOr<RevocationList> RevocationList::Read(const std::string& crl_pem,
                                                    const std::string& ca_pem) {
  RevocationList read;
  const std::vector<Certificate> authorities = ReadCertificates(ca_pem);
  const Bio bio(
      BIO_new_mem_buf(crl_pem.data(), static_cast<int>(crl_pem.size())));
  int count = 0;
  while (true) {
    const std::unique_ptr<X509_CRL, CrlFree> list(
        PEM_read_bio_X509_CRL(bio.get(), nullptr, nullptr, nullptr));
    // OpenSSL reports the end of the text as this error.
    const bool at_end = list == nullptr && ERR_GET_REASON(ERR_peek_last_error()) ==
                                               PEM_R_NO_START_LINE;
    ERR_clear_error();
    if (at_end && (count > 0 || crl_pem.empty())) return read;
    if (list == nullptr) {
      return absl::InvalidArgumentError(
          "is not a list of revoked certificates, as `atoll ca revoke` writes "
          "it to crl.pem");
    }
    ++count;
    const bool is_signed = IsSignedBy(*list, authorities);
    ERR_clear_error();
    if (!is_signed) {
      return absl::InvalidArgumentError(
          "no CA of ca.crt signed this list of revoked certificates: copy "
          "crl.pem of the same CA");
    }
    const std::string issuer = NameOf(X509_CRL_get_issuer(list.get()));
    STACK_OF(X509_REVOKED)* const entries = X509_CRL_get_REVOKED(list.get());
    for (int i = 0; i < sk_X509_REVOKED_num(entries); ++i) {
      const X509_REVOKED* const entry = sk_X509_REVOKED_value(entries, i);
      read.times_.emplace(
          std::pair(issuer, ToHex(X509_REVOKED_get0_serialNumber(entry))),
          ToTime(X509_REVOKED_get0_revocationDate(entry)));
    }
  }
}

std::vector<RevokedCertificate> RevocationList::entries() const {
  std::vector<RevokedCertificate> all;
  for (const auto& [key, time] : times_) all.push_back({key.second, time});
  std::sort(all.begin(), all.end(),
            [](const RevokedCertificate& a, const RevokedCertificate& b) {
              return std::pair(a.time, a.serial) < std::pair(b.time, b.serial);
            });
  return all;
}

std::optional<absl::Time> RevocationList::FindTime(
    const std::string& cert_pem) const {
  if (times_.empty()) return std::nullopt;
  const Certificate certificate = ReadFirstCertificate(cert_pem);
  if (certificate == nullptr) return std::nullopt;
  const auto found = times_.find(
      std::pair(NameOf(X509_get_issuer_name(certificate.get())),
                ToHex(X509_get0_serialNumber(certificate.get()))));
  if (found == times_.end()) return std::nullopt;
  return found->second;
}

absl::Status RevocationList::Check(const std::string& cert_pem) const {
  const std::optional<absl::Time> time = FindTime(cert_pem);
  if (!time.has_value()) return absl::OkStatus();
  return absl::UnauthenticatedError(absl::StrCat(
      "the certificate was revoked at ",
      absl::FormatTime(absl::RFC3339_sec, *time, absl::UTCTimeZone()),
      "; ask who issues certificates (`atoll ca`) for another one"));
}

}  // namespace atl::rpc
