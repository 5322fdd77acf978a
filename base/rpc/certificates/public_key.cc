#include "base/rpc/certificates/public_key.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <vector>

#include "absl/strings/escaping.h"
#include "base/codec/sha256.h"
#include "base/rpc/certificates/x509.h"
#include "base/status/status_macros.h"

namespace atl::rpc {
namespace {

absl::StatusOr<PublicKey> KeyOf(X509& certificate) {
  EVP_PKEY* const key = X509_get0_pubkey(&certificate);
  if (key == nullptr) {
    ERR_clear_error();
    return absl::InvalidArgumentError("the certificate's key is unreadable");
  }
  return ToPublicKey(*key);
}

}  // namespace

absl::StatusOr<PublicKey> ToPublicKey(EVP_PKEY& key) {
  unsigned char* bytes = nullptr;
  const int size = i2d_PUBKEY(&key, &bytes);
  if (size <= 0) {
    ERR_clear_error();
    return absl::InternalError("OpenSSL cannot write a public key");
  }
  PublicKey made;
  made.der.assign(reinterpret_cast<const char*>(bytes),
                  static_cast<size_t>(size));
  OPENSSL_free(bytes);
  const codec::Sha256Digest digest = codec::ComputeSha256(made.der);
  made.sha256.assign(digest.begin(), digest.end());
  return made;
}

absl::StatusOr<PublicKey> ReadPublicKey(const std::string& cert_pem) {
  ASSIGN_OR_RETURN(const Certificate certificate, FindCertificate(cert_pem));
  return KeyOf(*certificate);
}

std::string ToPin(const PublicKey& key) {
  return absl::WebSafeBase64Escape(key.sha256);
}

absl::StatusOr<std::string> FindPinned(const std::string& chain_pem,
                                       absl::string_view pin) {
  for (const Certificate& certificate : ReadCertificates(chain_pem)) {
    const absl::StatusOr<PublicKey> key = KeyOf(*certificate);
    if (key.ok() && ToPin(*key) == pin) return ToPem(*certificate);
  }
  return absl::NotFoundError("no certificate has this pin");
}

absl::StatusOr<std::string> FindRoot(const std::string& chain_pem) {
  const std::vector<Certificate> chain = ReadCertificates(chain_pem);
  if (chain.empty() || X509_check_ca(chain.back().get()) != 1 ||
      X509_self_signed(chain.back().get(), 1) != 1) {
    ERR_clear_error();
    return absl::NotFoundError("the chain does not end with a root CA");
  }
  return ToPem(*chain.back());
}

}  // namespace atl::rpc
