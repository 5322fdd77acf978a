#include "base/rpc/certificates/authority.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/certificates/x509.h"
#include "base/status/status_macros.h"

namespace atl::rpc {
namespace {

constexpr size_t kSerialBytes = 16;
constexpr size_t kCommonNameBytesMax = 64;  // X.509's limit.
constexpr size_t kDnsNameBytesMax = 253;
constexpr size_t kUriBytesMax = 1024;
constexpr int kRsaBitsMin = 2048;
constexpr int kRsaBitsMax = 8192;  // More only takes verifiers' time.

struct NamesFree {
  void operator()(GENERAL_NAMES* names) const { GENERAL_NAMES_free(names); }
  void operator()(BIGNUM* number) const { BN_free(number); }
};

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

bool SetSerial(X509& certificate, const std::string& serial) {
  const std::unique_ptr<BIGNUM, NamesFree> number(BN_new());
  if (number == nullptr) return false;
  const bool made =
      serial.empty()
          ? BN_rand(number.get(), 8 * kSerialBytes, BN_RAND_TOP_ANY,
                    BN_RAND_BOTTOM_ANY) == 1
          : BN_bin2bn(reinterpret_cast<const unsigned char*>(serial.data()),
                      static_cast<int>(serial.size()), number.get()) != nullptr;
  return made && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(
                                                      &certificate)) != nullptr;
}

bool SetValidity(X509& certificate, absl::Time begin, absl::Time end) {
  return ASN1_TIME_set(X509_getm_notBefore(&certificate),
                       absl::ToTimeT(begin)) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(&certificate), absl::ToTimeT(end)) !=
             nullptr;
}

// Adds a name of `type` whose content is `text`, to which no syntax applies.
bool AddName(GENERAL_NAMES& names, int type, const std::string& text) {
  ASN1_STRING* value = nullptr;
  if (type == GEN_IPADD) {
    value = a2i_IPADDRESS(text.c_str());
  } else if ((value = ASN1_IA5STRING_new()) != nullptr) {
    ASN1_STRING_set(value, text.data(), static_cast<int>(text.size()));
  }
  GENERAL_NAME* const name = GENERAL_NAME_new();
  if (value == nullptr || name == nullptr) {
    ASN1_STRING_free(value);
    GENERAL_NAME_free(name);
    return false;
  }
  GENERAL_NAME_set0_value(name, type, value);
  if (sk_GENERAL_NAME_push(&names, name) > 0) return true;
  GENERAL_NAME_free(name);
  return false;
}

bool AddAlternativeNames(X509& certificate, const CertificateSpec& spec) {
  if (spec.hosts.empty() && spec.uris.empty()) return true;
  const std::unique_ptr<GENERAL_NAMES, NamesFree> names(GENERAL_NAMES_new());
  if (names == nullptr) return false;
  for (const std::string& host : spec.hosts) {
    if (!AddName(*names, IsIp(host) ? GEN_IPADD : GEN_DNS, host)) return false;
  }
  for (const std::string& uri : spec.uris) {
    if (!AddName(*names, GEN_URI, uri)) return false;
  }
  return X509_add1_ext_i2d(&certificate, NID_subject_alt_name, names.get(), 0,
                           X509V3_ADD_DEFAULT) == 1;
}

struct Extension {
  int nid;
  std::string value;
};

struct Issuer {
  Certificate certificate;
  PrivateKey key;
};

absl::StatusOr<Issuer> ReadIssuer(const KeyAndCertificate& authority) {
  RETURN_IF_ERROR(CheckKey(authority.cert_pem, authority.key_pem));
  Issuer issuer{ReadFirstCertificate(authority.cert_pem),
                ReadPrivateKey(authority.key_pem)};
  if (X509_check_ca(issuer.certificate.get()) != 1) {
    return absl::InvalidArgumentError("is not a CA's certificate");
  }
  return issuer;
}

absl::Status CheckSpec(const CertificateSpec& spec) {
  if (spec.common_name.size() > kCommonNameBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("the common name \"", spec.common_name, "\" has ",
                     spec.common_name.size(), " bytes; X.509 allows ",
                     kCommonNameBytesMax, ": choose a shorter id"));
  }
  for (const std::string& host : spec.hosts) {
    RETURN_IF_ERROR(CheckCertificateHost(host));
  }
  for (const std::string& uri : spec.uris) {
    if (uri.empty() || uri.size() > kUriBytesMax ||
        !std::all_of(uri.begin(), uri.end(),
                     [](unsigned char c) { return absl::ascii_isgraph(c); })) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", absl::CHexEscape(uri.substr(0, 200)), "\" is not a URI"));
    }
  }
  if (spec.serial.empty() || (spec.serial.size() == kSerialBytes &&
                              spec.serial != std::string(kSerialBytes, '\0'))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "a serial number has ", kSerialBytes, " bytes and is not zero"));
}

// A certificate for `key` as `spec` says. `issuer` signs it; without one,
// `key` itself.
absl::StatusOr<std::string> Sign(const CertificateSpec& spec, EVP_PKEY& key,
                                 const Issuer* issuer,
                                 const std::vector<Extension>& given) {
  RETURN_IF_ERROR(CheckSpec(spec));
  const Certificate made(X509_new());
  if (made == nullptr) return OpensslError("a certificate");
  X509& certificate = *made;
  X509& signer = issuer == nullptr ? certificate : *issuer->certificate;
  absl::Time end = spec.end;
  if (issuer != nullptr) {
    end = std::min(end, ToTime(X509_get0_notAfter(&signer)));
  }
  const auto* const name =
      reinterpret_cast<const unsigned char*>(spec.common_name.data());
  const bool named =
      X509_set_version(&certificate, X509_VERSION_3) == 1 &&
      SetSerial(certificate, spec.serial) &&
      SetValidity(certificate, spec.begin, end) &&
      X509_set_pubkey(&certificate, &key) == 1 &&
      X509_NAME_add_entry_by_NID(
          X509_get_subject_name(&certificate), NID_commonName, MBSTRING_UTF8,
          name, static_cast<int>(spec.common_name.size()), -1, 0) == 1 &&
      X509_set_issuer_name(&certificate, X509_get_subject_name(&signer)) == 1;
  if (!named) return OpensslError("a certificate");
  std::vector<Extension> extensions = {{NID_subject_key_identifier, "hash"},
                                       {NID_authority_key_identifier, "keyid"}};
  extensions.insert(extensions.end(), given.begin(), given.end());
  std::vector<std::string> uses;
  if (spec.server_auth) uses.push_back("serverAuth");
  if (spec.client_auth) uses.push_back("clientAuth");
  if (!uses.empty()) {
    extensions.push_back({NID_ext_key_usage, absl::StrJoin(uses, ",")});
  }
  for (const Extension& extension : extensions) {
    if (!AddExtension(certificate, signer, extension.nid, extension.value)) {
      return OpensslError(extension.value);
    }
  }
  if (!AddAlternativeNames(certificate, spec)) {
    return OpensslError("alternative names");
  }
  if (X509_sign(&certificate, issuer == nullptr ? &key : issuer->key.get(),
                EVP_sha256()) <= 0) {
    return OpensslError("a signature");
  }
  return ToPem(certificate);
}

// As Sign, with a new key.
absl::StatusOr<KeyAndCertificate> Make(const CertificateSpec& spec,
                                       const Issuer* issuer,
                                       const std::vector<Extension>& given) {
  const PrivateKey key(EVP_EC_gen("P-256"));
  if (key == nullptr) return OpensslError("a key");
  KeyAndCertificate made;
  ASSIGN_OR_RETURN(made.cert_pem, Sign(spec, *key, issuer, given));
  made.key_pem = ToPem(*key);
  return made;
}

std::vector<Extension> AuthorityExtensions(int path_length) {
  return {{NID_basic_constraints,
           absl::StrCat("critical,CA:TRUE,pathlen:", path_length)},
          {NID_key_usage, "critical,keyCertSign,cRLSign"}};
}

std::vector<Extension> LeafExtensions() {
  return {{NID_basic_constraints, "critical,CA:FALSE"},
          {NID_key_usage, "critical,digitalSignature"}};
}

// Returns whether certificates may be for `key`, perhaps a stranger's.
bool IsGoodKey(const EVP_PKEY& key) {
  const int bits = EVP_PKEY_get_bits(&key);
  switch (EVP_PKEY_get_base_id(&key)) {
    case EVP_PKEY_ED25519:
      return true;
    case EVP_PKEY_RSA:
      return bits >= kRsaBitsMin && bits <= kRsaBitsMax;
    case EVP_PKEY_EC: {
      // A curve that is spelt out, rather than named, is refused by many.
      char encoding[32] = {};
      char name[32] = {};
      return EVP_PKEY_get_utf8_string_param(&key, OSSL_PKEY_PARAM_EC_ENCODING,
                                            encoding, sizeof(encoding),
                                            nullptr) == 1 &&
             EVP_PKEY_get_group_name(&key, name, sizeof(name), nullptr) == 1 &&
             absl::string_view(encoding) == OSSL_PKEY_EC_ENCODING_GROUP &&
             (absl::string_view(name) == SN_X9_62_prime256v1 ||
              absl::string_view(name) == SN_secp384r1);
    }
    default:
      return false;
  }
}

struct ListFree {
  void operator()(X509_CRL* list) const { X509_CRL_free(list); }
  void operator()(X509_REVOKED* entry) const { X509_REVOKED_free(entry); }
  // Numbers and times.
  void operator()(ASN1_STRING* value) const { ASN1_STRING_free(value); }
};

using Crl = std::unique_ptr<X509_CRL, ListFree>;
using Number = std::unique_ptr<ASN1_INTEGER, ListFree>;
using Asn1Time = std::unique_ptr<ASN1_TIME, ListFree>;

// Null if `hex` is not a number.
Number NumberFromHex(const std::string& hex) {
  BIGNUM* read = nullptr;
  const int length = BN_hex2bn(&read, hex.c_str());
  const std::unique_ptr<BIGNUM, NamesFree> value(read);
  if (hex.empty() || length != static_cast<int>(hex.size())) return nullptr;
  return Number(BN_to_ASN1_INTEGER(value.get(), nullptr));
}

bool AddEntry(X509_CRL& list, const RevokedCertificate& revoked) {
  const Number serial = NumberFromHex(revoked.serial);
  const Asn1Time time(ASN1_TIME_set(nullptr, absl::ToTimeT(revoked.time)));
  std::unique_ptr<X509_REVOKED, ListFree> entry(X509_REVOKED_new());
  if (serial == nullptr || time == nullptr || entry == nullptr ||
      X509_REVOKED_set_serialNumber(entry.get(), serial.get()) != 1 ||
      X509_REVOKED_set_revocationDate(entry.get(), time.get()) != 1 ||
      X509_CRL_add0_revoked(&list, entry.get()) != 1) {
    return false;
  }
  (void)entry.release();
  return true;
}

bool AddKeyIdentifier(X509_CRL& list, X509& issuer) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, &issuer, nullptr, nullptr, &list, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(
      nullptr, &context, NID_authority_key_identifier, "keyid");
  const bool added =
      extension != nullptr && X509_CRL_add_ext(&list, extension, -1) == 1;
  X509_EXTENSION_free(extension);
  return added;
}

// A CA's list has a greater number than those before it.
bool AddListNumber(X509_CRL& list, absl::Time now) {
  const Number number(ASN1_INTEGER_new());
  return number != nullptr &&
         ASN1_INTEGER_set_int64(number.get(), absl::ToUnixMicros(now)) == 1 &&
         X509_CRL_add1_ext_i2d(&list, NID_crl_number, number.get(), 0,
                               X509V3_ADD_DEFAULT) == 1;
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

absl::StatusOr<CertificateFacts> ReadFacts(const std::string& cert_pem) {
  ASSIGN_OR_RETURN(const Certificate certificate, FindCertificate(cert_pem));
  CertificateFacts facts{
      .begin = ToTime(X509_get0_notBefore(certificate.get())),
      .end = ToTime(X509_get0_notAfter(certificate.get())),
      .path_length = static_cast<int>(X509_get_pathlen(certificate.get()))};
  const std::unique_ptr<GENERAL_NAMES, NamesFree> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(
          certificate.get(), NID_subject_alt_name, nullptr, nullptr)));
  ERR_clear_error();
  // A null pointer has no names.
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const text = name->d.uniformResourceIdentifier;
    facts.uris.emplace_back(
        reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
        static_cast<size_t>(ASN1_STRING_length(text)));
  }
  return facts;
}

absl::StatusOr<KeyAndCertificate> MakeAuthority(absl::string_view common_name,
                                                absl::Time begin,
                                                absl::Time end,
                                                int path_length) {
  CertificateSpec spec;
  spec.common_name = std::string(common_name);
  spec.begin = begin;
  spec.end = end;
  return Make(spec, nullptr, AuthorityExtensions(path_length));
}

absl::StatusOr<KeyAndCertificate> IssueAuthority(const KeyAndCertificate& root,
                                                 const CertificateSpec& spec) {
  ASSIGN_OR_RETURN(const Issuer issuer, ReadIssuer(root));
  if (X509_get_pathlen(issuer.certificate.get()) == 0) {
    return absl::InvalidArgumentError("is a CA that signs no other CA");
  }
  return Make(spec, &issuer, AuthorityExtensions(0));
}

absl::StatusOr<KeyAndCertificate> IssueCertificate(
    const KeyAndCertificate& authority, const CertificateSpec& spec) {
  ASSIGN_OR_RETURN(const Issuer issuer, ReadIssuer(authority));
  return Make(spec, &issuer, LeafExtensions());
}

absl::StatusOr<std::string> IssueCertificateForKey(
    const KeyAndCertificate& authority, const CertificateSpec& spec,
    const std::string& key_der) {
  ASSIGN_OR_RETURN(const Issuer issuer, ReadIssuer(authority));
  const auto* at = reinterpret_cast<const unsigned char*>(key_der.data());
  const unsigned char* const end = at + key_der.size();
  const PrivateKey key(
      d2i_PUBKEY(nullptr, &at, static_cast<long>(key_der.size())));
  const bool good = key != nullptr && at == end && IsGoodKey(*key);
  ERR_clear_error();
  if (!good) {
    return absl::InvalidArgumentError(
        absl::StrCat("the key is not on P-256 or P-384, of Ed25519, or of RSA "
                     "with ",
                     kRsaBitsMin, " to ", kRsaBitsMax, " bits"));
  }
  return Sign(spec, *key, &issuer, LeafExtensions());
}

absl::StatusOr<std::string> ReissueCertificate(
    const KeyAndCertificate& authority, const std::string& cert_pem,
    absl::Time begin, absl::Time end) {
  ASSIGN_OR_RETURN(const Issuer issuer, ReadIssuer(authority));
  X509* const signer = issuer.certificate.get();
  const Certificate certificate = ReadFirstCertificate(cert_pem);
  const bool ours =
      certificate != nullptr &&
      X509_check_issued(signer, certificate.get()) == X509_V_OK &&
      X509_verify(certificate.get(), X509_get0_pubkey(signer)) == 1;
  ERR_clear_error();
  if (!ours) {
    return absl::InvalidArgumentError("this CA did not sign the certificate");
  }
  if (X509_cmp(certificate.get(), signer) != 0) {
    end = std::min(end, ToTime(X509_get0_notAfter(signer)));
  }
  if (!SetSerial(*certificate, "") || !SetValidity(*certificate, begin, end) ||
      X509_sign(certificate.get(), issuer.key.get(), EVP_sha256()) <= 0) {
    return OpensslError("a signature");
  }
  return ToPem(*certificate);
}

absl::StatusOr<std::string> MakeRevocationList(
    const KeyAndCertificate& authority,
    const std::vector<RevokedCertificate>& revoked, absl::Time now) {
  ASSIGN_OR_RETURN(const Issuer issuer, ReadIssuer(authority));
  X509& signer = *issuer.certificate;
  const Crl list(X509_CRL_new());
  const Asn1Time begin(ASN1_TIME_set(nullptr, absl::ToTimeT(now)));
  bool made =
      list != nullptr && begin != nullptr &&
      X509_CRL_set_version(list.get(), X509_CRL_VERSION_2) == 1 &&
      X509_CRL_set_issuer_name(list.get(),
                               X509_get_subject_name(&signer)) == 1 &&
      X509_CRL_set1_lastUpdate(list.get(), begin.get()) == 1 &&
      X509_CRL_set1_nextUpdate(list.get(),
                               X509_get0_notAfter(&signer)) == 1;
  for (const RevokedCertificate& each : revoked) {
    if (made && !AddEntry(*list, each)) {
      ERR_clear_error();
      return absl::InvalidArgumentError(
          absl::StrCat("\"", each.serial, "\" is not a serial number"));
    }
  }
  made = made && X509_CRL_sort(list.get()) == 1 &&
         AddKeyIdentifier(*list, signer) && AddListNumber(*list, now) &&
         X509_CRL_sign(list.get(), issuer.key.get(), EVP_sha256()) > 0;
  const Bio bio(BIO_new(BIO_s_mem()));
  if (!made || bio == nullptr ||
      PEM_write_bio_X509_CRL(bio.get(), list.get()) != 1) {
    return OpensslError("a list of certificates");
  }
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

}  // namespace atl::rpc
