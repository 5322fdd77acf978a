#include "base/rpc/testing/test_certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace atl::rpc {
namespace {

void Require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "test certificates: %s failed\n", what);
  std::abort();
}

struct KeyFree {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
struct CertFree {
  void operator()(X509* cert) const { X509_free(cert); }
};
using Key = std::unique_ptr<EVP_PKEY, KeyFree>;
using Cert = std::unique_ptr<X509, CertFree>;

void AddExtension(X509* cert, X509* issuer, int nid, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, cert, nullptr, nullptr, 0);
  X509_EXTENSION* extension =
      X509V3_EXT_conf_nid(nullptr, &context, nid, value);
  Require(extension != nullptr && X509_add_ext(cert, extension, -1) == 1,
          "an extension");
  X509_EXTENSION_free(extension);
}

// A certificate of `key`, signed by `issuer` with `issuer_key`; self-signed if
// `issuer` is null.
Cert MakeCert(const std::string& common_name, EVP_PKEY* key, X509* issuer,
              EVP_PKEY* issuer_key, int serial) {
  Cert cert(X509_new());
  X509_set_version(cert.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(cert.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(cert.get()), -60);
  X509_gmtime_adj(X509_getm_notAfter(cert.get()), 3600);
  X509_set_pubkey(cert.get(), key);
  X509_NAME* name = X509_get_subject_name(cert.get());
  Require(X509_NAME_add_entry_by_txt(
              name, "CN", MBSTRING_ASC,
              reinterpret_cast<const unsigned char*>(common_name.c_str()), -1,
              -1, 0) == 1,
          "a common name");
  if (issuer == nullptr) issuer = cert.get();
  X509_set_issuer_name(cert.get(), X509_get_subject_name(issuer));
  if (issuer == cert.get()) {
    AddExtension(cert.get(), issuer, NID_basic_constraints, "critical,CA:TRUE");
  } else {
    AddExtension(cert.get(), issuer, NID_subject_alt_name,
                 "DNS:localhost,IP:127.0.0.1");
  }
  Require(X509_sign(cert.get(), issuer_key, EVP_sha256()) > 0, "a signature");
  return cert;
}

template <typename Write>
void WriteFile(const std::string& path, Write write) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  Require(file != nullptr && write(file) == 1, "a file");
  std::fclose(file);
}

}  // namespace

struct TestAuthority::State {
  Key key;
  Cert cert;
};

TestAuthority::TestAuthority(std::string directory)
    : directory_(std::move(directory)), state_(std::make_unique<State>()) {
  state_->key.reset(EVP_EC_gen("P-256"));
  Require(state_->key != nullptr, "a key");
  state_->cert = MakeCert("test authority", state_->key.get(), nullptr,
                          state_->key.get(), 1);
  WriteFile(directory_ + "/ca.pem", [&](std::FILE* file) {
    return PEM_write_X509(file, state_->cert.get());
  });
}

TestAuthority::~TestAuthority() = default;

TlsFiles TestAuthority::Issue(const std::string& common_name) {
  ++issued_count_;
  const Key key(EVP_EC_gen("P-256"));
  const Cert cert = MakeCert(common_name, key.get(), state_->cert.get(),
                             state_->key.get(), 1 + issued_count_);
  const std::string stem = absl::StrCat(directory_, "/", issued_count_);
  TlsFiles files{stem + ".cert.pem", stem + ".key.pem", directory_ + "/ca.pem"};
  WriteFile(files.cert,
            [&](std::FILE* file) { return PEM_write_X509(file, cert.get()); });
  WriteFile(files.key, [&](std::FILE* file) {
    return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr,
                                nullptr);
  });
  return files;
}

}  // namespace atl::rpc
