#include "base/rpc/certificates/authority.h"

#include <openssl/bn.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/certificates/x509.h"
#include "base/status/status_macros.h"

namespace atl::rpc {
namespace {

constexpr int kSerialBits = 128;
constexpr size_t kCommonNameBytesMax = 64;  // X.509's limit.
constexpr size_t kDnsNameBytesMax = 253;

// The newest error of OpenSSL, which this thread then forgets.
absl::Status OpensslError(absl::string_view what) {
  char text[256] = {};
  ERR_error_string_n(ERR_peek_last_error(), text, sizeof(text));
  ERR_clear_error();
  return absl::InternalError(absl::StrCat("OpenSSL: ", what, ": ", text));
}

bool IsIp(const std::string& host) {
  ASN1_OCTET_STRING* const address = a2i_IPADDRESS(host.c_str());
  ASN1_OCTET_STRING_free(address);
  ERR_clear_error();
  return address != nullptr;
}

bool IsDnsLabel(absl::string_view label) {
  return !label.empty() && label.size() <= 63 && label.front() != '-' &&
         label.back() != '-' &&
         std::all_of(label.begin(), label.end(), [](unsigned char c) {
           return absl::ascii_isalnum(c) || c == '-' || c == '_';
         });
}

bool AddExtension(X509& certificate, X509& issuer, int nid,
                  const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension =
      X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  const bool added =
      extension != nullptr && X509_add_ext(&certificate, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

bool SetSerial(X509& certificate) {
  BIGNUM* const number = BN_new();
  const bool set =
      number != nullptr &&
      BN_rand(number, kSerialBits, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) == 1 &&
      BN_to_ASN1_INTEGER(number, X509_get_serialNumber(&certificate)) !=
          nullptr;
  BN_free(number);
  return set;
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

struct Extension {
  int nid;
  std::string value;
};

// A new key and its certificate, signed by `issuer` with `issuer_key`;
// self-signed if `issuer` is null.
absl::StatusOr<KeyAndCertificate> Make(const CertificateSpec& spec,
                                       X509* issuer, EVP_PKEY* issuer_key,
                                       const std::vector<Extension>& given) {
  if (spec.common_name.size() > kCommonNameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the common name \"", spec.common_name, "\" has ",
        spec.common_name.size(), " bytes; X.509 allows ",
        kCommonNameBytesMax, ": choose a shorter id"));
  }
  const PrivateKey key(EVP_EC_gen("P-256"));
  const Certificate made(X509_new());
  if (key == nullptr || made == nullptr) return OpensslError("a key");
  X509& certificate = *made;
  if (issuer == nullptr) {
    issuer = &certificate;
    issuer_key = key.get();
  }
  const auto* const name =
      reinterpret_cast<const unsigned char*>(spec.common_name.data());
  const bool named =
      X509_set_version(&certificate, X509_VERSION_3) == 1 &&
      SetSerial(certificate) &&
      ASN1_TIME_set(X509_getm_notBefore(&certificate),
                    absl::ToTimeT(spec.begin)) != nullptr &&
      ASN1_TIME_set(X509_getm_notAfter(&certificate),
                    absl::ToTimeT(spec.end)) != nullptr &&
      X509_set_pubkey(&certificate, key.get()) == 1 &&
      X509_NAME_add_entry_by_NID(X509_get_subject_name(&certificate),
                                 NID_commonName, MBSTRING_UTF8, name,
                                 static_cast<int>(spec.common_name.size()), -1,
                                 0) == 1 &&
      X509_set_issuer_name(&certificate, X509_get_subject_name(issuer)) == 1;
  if (!named) return OpensslError("a certificate");
  std::vector<Extension> extensions = {{NID_subject_key_identifier, "hash"},
                                       {NID_authority_key_identifier,
                                        "keyid"}};
  extensions.insert(extensions.end(), given.begin(), given.end());
  for (const Extension& extension : extensions) {
    if (!AddExtension(certificate, *issuer, extension.nid, extension.value)) {
      return OpensslError(extension.value);
    }
  }
  if (X509_sign(&certificate, issuer_key, EVP_sha256()) <= 0) {
    return OpensslError("a signature");
  }
  return KeyAndCertificate{ToPem(*key), ToPem(certificate)};
}

}  // namespace

absl::Status CheckCertificateHost(absl::string_view host) {
  const std::vector<absl::string_view> labels = absl::StrSplit(host, '.');
  // A name whose last label is a number is a malformed address.
  const bool is_name =
      host.size() <= kDnsNameBytesMax &&
      std::all_of(labels.begin(), labels.end(), IsDnsLabel) &&
      !absl::ascii_isdigit(static_cast<unsigned char>(labels.back().front()));
  if (is_name || IsIp(std::string(host))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", host, "\" is neither a DNS name nor an IP address (without port)"));
}

absl::StatusOr<KeyAndCertificate> MakeAuthority(absl::string_view common_name,
                                                absl::Time begin,
                                                absl::Time end) {
  CertificateSpec spec;
  spec.common_name = std::string(common_name);
  spec.begin = begin;
  spec.end = end;
  return Make(spec, nullptr, nullptr,
              {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
               {NID_key_usage, "critical,keyCertSign,cRLSign"}});
}

absl::StatusOr<KeyAndCertificate> IssueCertificate(
    const KeyAndCertificate& authority, const CertificateSpec& spec) {
  RETURN_IF_ERROR(CheckKey(authority.cert_pem, authority.key_pem));
  const Certificate issuer = ReadFirstCertificate(authority.cert_pem);
  const PrivateKey issuer_key = ReadPrivateKey(authority.key_pem);
  if (X509_check_ca(issuer.get()) != 1) {
    return absl::InvalidArgumentError("is not a CA's certificate");
  }
  std::vector<std::string> names;
  for (const std::string& host : spec.hosts) {
    RETURN_IF_ERROR(CheckCertificateHost(host));
    names.push_back(absl::StrCat(IsIp(host) ? "IP:" : "DNS:", host));
  }
  std::vector<Extension> extensions = {
      {NID_basic_constraints, "critical,CA:FALSE"},
      {NID_key_usage, "critical,digitalSignature"}};
  std::vector<std::string> uses;
  if (spec.server_auth) uses.push_back("serverAuth");
  if (spec.client_auth) uses.push_back("clientAuth");
  if (!uses.empty()) {
    extensions.push_back({NID_ext_key_usage, absl::StrJoin(uses, ",")});
  }
  if (!names.empty()) {
    extensions.push_back({NID_subject_alt_name, absl::StrJoin(names, ",")});
  }
  CertificateSpec bounded = spec;
  bounded.end =
      std::min(spec.end, ToTime(X509_get0_notAfter(issuer.get())));
  return Make(bounded, issuer.get(), issuer_key.get(), extensions);
}

}  // namespace atl::rpc
