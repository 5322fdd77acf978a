// OpenSSL's certificates and keys as owned values, read from PEM.
//
// Pure. Thread-safe.

#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace atl::rpc {

struct OpensslFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};

using Bio = std::unique_ptr<BIO, OpensslFree>;
using Certificate = std::unique_ptr<X509, OpensslFree>;
using PrivateKey = std::unique_ptr<EVP_PKEY, OpensslFree>;

// All certificates of `pem`, in order. One that is malformed ends the list.
std::vector<Certificate> ReadCertificates(const std::string& pem);

// The first certificate of `pem`; null if it holds none.
Certificate ReadFirstCertificate(const std::string& pem);
// The same. INVALID_ARGUMENT: it holds none.
absl::StatusOr<Certificate> FindCertificate(const std::string& pem);

// The first key of `pem`; null if it holds none, or one with a password.
PrivateKey ReadPrivateKey(const std::string& pem);

// As PEM. A key is written without a password.
std::string ToPem(X509& certificate);
std::string ToPem(EVP_PKEY& key);

// The common name if it occurs exactly once; otherwise empty.
std::string CommonNameOf(X509& certificate);

// Certificates that are trusted. To read them takes longer than to verify a
// chain.
class TrustAnchors {
 public:
  // Those of `pem`; intermediate CAs may be among them.
  explicit TrustAnchors(const std::string& pem);

  // OK if the chain, the leaf first, ends in an anchor, with at least 112 bits
  // of security, and all are valid at `time`; nullopt: at any time. `purpose`
  // is an X509_PURPOSE_*.
  // UNAUTHENTICATED: it does not; the message is OpenSSL's reason.
  // INTERNAL: OpenSSL has no memory.
  absl::Status Verify(const std::vector<Certificate>& chain, int purpose,
                      std::optional<absl::Time> time) const;

 private:
  std::shared_ptr<X509_STORE> store_;
};

// TrustAnchors(anchors_pem).Verify.
absl::Status VerifyChain(const std::vector<Certificate>& chain,
                         const std::string& anchors_pem, int purpose,
                         std::optional<absl::Time> time);

// SHA-256 of the DER bytes of the first certificate of `pem`, in hex; empty if
// it holds none.
std::string CertificateSha256(const std::string& pem);

// Infinitely long ago if `time` is malformed.
absl::Time ToTime(const ASN1_TIME* time);

}  // namespace atl::rpc
