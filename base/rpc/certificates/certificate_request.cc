#include "base/rpc/certificates/certificate_request.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/x509.h>

#include <memory>

#include "absl/strings/string_view.h"
#include "base/rpc/certificates/x509.h"
#include "base/status/status_macros.h"

namespace atl::rpc {
namespace {

constexpr int kKeyBitsMin = 2048;
constexpr int kKeyBitsMax = 4096;

struct RequestFree {
  void operator()(X509_REQ* request) const { X509_REQ_free(request); }
};
using Request = std::unique_ptr<X509_REQ, RequestFree>;

absl::Status RequestError(absl::string_view what) {
  ERR_clear_error();
  return absl::InternalError(what);
}

// A parameter of `key` that is a text; empty if it has none.
std::string TextOf(const EVP_PKEY& key, const char* parameter) {
  char text[64] = {};
  EVP_PKEY_get_utf8_string_param(&key, parameter, text, sizeof(text), nullptr);
  ERR_clear_error();
  return text;
}

bool IsAllowed(const EVP_PKEY& key) {
  const int bits = EVP_PKEY_get_bits(&key);
  switch (EVP_PKEY_get_base_id(&key)) {
    case EVP_PKEY_RSA:
      return bits >= kKeyBitsMin && bits <= kKeyBitsMax;
    case EVP_PKEY_ED25519:
      return true;
    case EVP_PKEY_EC: {
      const std::string curve = TextOf(key, OSSL_PKEY_PARAM_GROUP_NAME);
      return (curve == "prime256v1" || curve == "secp384r1") &&
             TextOf(key, OSSL_PKEY_PARAM_EC_ENCODING) ==
                 OSSL_PKEY_EC_ENCODING_GROUP;
    }
    default:
      return false;
  }
}

// Ed25519 has a digest of its own.
const EVP_MD* DigestFor(const EVP_PKEY& key) {
  return EVP_PKEY_get_base_id(&key) == EVP_PKEY_ED25519 ? nullptr
                                                        : EVP_sha256();
}

absl::StatusOr<std::string> MakeRequest(EVP_PKEY& key) {
  const Request request(X509_REQ_new());
  if (request == nullptr ||
      X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) != 1 ||
      X509_REQ_set_pubkey(request.get(), &key) != 1 ||
      X509_REQ_sign(request.get(), &key, DigestFor(key)) <= 0) {
    return RequestError("OpenSSL cannot sign a certificate request");
  }
  unsigned char* bytes = nullptr;
  const int size = i2d_X509_REQ(request.get(), &bytes);
  if (size <= 0) return RequestError("OpenSSL cannot write a request");
  std::string der(reinterpret_cast<const char*>(bytes),
                  static_cast<size_t>(size));
  OPENSSL_free(bytes);
  return der;
}

}  // namespace

absl::StatusOr<KeyAndRequest> MakeKeyAndRequest() {
  const PrivateKey key(EVP_EC_gen("P-256"));
  if (key == nullptr) return RequestError("OpenSSL cannot make a key");
  KeyAndRequest made;
  made.key_pem = ToPem(*key);
  ASSIGN_OR_RETURN(made.request_der, MakeRequest(*key));
  return made;
}

absl::StatusOr<std::string> MakeCertificateRequest(const std::string& key_pem) {
  const PrivateKey key = ReadPrivateKey(key_pem);
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        "holds no private key that can be read without a password");
  }
  return MakeRequest(*key);
}

absl::StatusOr<PublicKey> ReadCertificateRequest(
    const std::string& request_der) {
  const auto* at = reinterpret_cast<const unsigned char*>(request_der.data());
  const auto* const end = at + request_der.size();
  const Request request(
      d2i_X509_REQ(nullptr, &at, static_cast<long>(request_der.size())));
  ERR_clear_error();
  if (request == nullptr || at != end) {
    return absl::InvalidArgumentError(
        "the certificate request is not a PKCS #10 request in DER");
  }
  EVP_PKEY* const key = X509_REQ_get0_pubkey(request.get());
  // Checked first: the cost of a signature depends on the key.
  if (key == nullptr || !IsAllowed(*key)) {
    ERR_clear_error();
    return absl::InvalidArgumentError(
        "the certificate request has a key of a kind that is not allowed: use "
        "one on P-256 or P-384, of Ed25519, or of RSA with 2048 to 4096 bits");
  }
  const bool is_signed = X509_REQ_verify(request.get(), key) == 1;
  ERR_clear_error();
  if (!is_signed) {
    return absl::InvalidArgumentError(
        "the certificate request's signature is wrong");
  }
  return ToPublicKey(*key);
}

}  // namespace atl::rpc
