#include "base/rpc/certificates/chain_check.h"

#include <openssl/err.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <memory>
#include <vector>

#include "base/rpc/certificates/x509.h"

namespace atl::rpc {
namespace {

// At least 112 bits of security, as OpenSSL's connections require here.
constexpr int kSecurityLevel = 2;

struct StoreFree {
  void operator()(X509_STORE* store) const { X509_STORE_free(store); }
  void operator()(X509_STORE_CTX* context) const {
    X509_STORE_CTX_free(context);
  }
  void operator()(STACK_OF(X509) * stack) const { sk_X509_free(stack); }
};

}  // namespace

absl::Status CheckChain(const std::string& chain_pem, const std::string& ca_pem,
                        KeyUse use, absl::Time now) {
  const std::vector<Certificate> chain = ReadCertificates(chain_pem);
  if (chain.empty()) return absl::UnauthenticatedError("no certificate");
  const std::unique_ptr<X509_STORE, StoreFree> store(X509_STORE_new());
  const std::unique_ptr<X509_STORE_CTX, StoreFree> context(
      X509_STORE_CTX_new());
  // Borrows the certificates.
  const std::unique_ptr<STACK_OF(X509), StoreFree> others(sk_X509_new_null());
  if (store == nullptr || context == nullptr || others == nullptr) {
    return absl::InternalError("OpenSSL has no memory");
  }
  for (const Certificate& ca : ReadCertificates(ca_pem)) {
    X509_STORE_add_cert(store.get(), ca.get());
  }
  for (size_t i = 1; i < chain.size(); ++i) {
    sk_X509_push(others.get(), chain[i].get());
  }
  // An intermediate CA may be trusted by itself, as in gRPC's own check.
  X509_STORE_set_flags(store.get(),
                       X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
  if (X509_STORE_CTX_init(context.get(), store.get(), chain[0].get(),
                          others.get()) != 1) {
    return absl::InternalError("OpenSSL has no memory");
  }
  X509_VERIFY_PARAM* const rules = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_time(rules, absl::ToTimeT(now));
  X509_VERIFY_PARAM_set_auth_level(rules, kSecurityLevel);
  const int purpose = use == KeyUse::kServer ? X509_PURPOSE_SSL_SERVER
                                             : X509_PURPOSE_SSL_CLIENT;
  if (X509_VERIFY_PARAM_set_purpose(rules, purpose) != 1) {
    return absl::InternalError("OpenSSL does not know the purpose");
  }
  const bool trusted = X509_verify_cert(context.get()) == 1;
  ERR_clear_error();
  if (trusted) return absl::OkStatus();
  return absl::UnauthenticatedError(
      X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())));
}

}  // namespace atl::rpc
