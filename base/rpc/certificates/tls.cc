#include "base/rpc/certificates/tls.h"

#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/rpc/certificates/revocation_list.h"
#include "base/rpc/certificates/x509.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl::rpc {
namespace {

constexpr size_t kFileBytesMax = 1 << 20;

absl::StatusOr<std::string> ReadPem(absl::string_view flag,
                                    const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return absl::NotFoundError(
        absl::StrCat(flag, ": cannot open \"", path, "\""));
  }
  std::string text(kFileBytesMax + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > kFileBytesMax || !absl::StrContains(text, "-----BEGIN ")) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": \"", path, "\" is not a PEM file"));
  }
  return text;
}

// The flag that led to the file.
absl::string_view FlagOf(const TlsFiles& files, const std::string& path,
                         absl::string_view flag) {
  return !files.dir.empty() && absl::StartsWith(path, files.dir) ? "--tls-dir"
                                                                 : flag;
}

std::string Utc(absl::Time time) {
  return absl::FormatTime(absl::RFC3339_sec, time, absl::UTCTimeZone());
}

bool Exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

// The certificates of --tls-island-ca must count for nothing else.
absl::Status CheckIslandCa(const TlsFiles& files, const std::string& path,
                           const TlsMaterial& material) {
  std::vector<Certificate> island_cas =
      ReadCertificates(material.island_ca_pem);
  if (island_cas.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(FlagOf(files, path, "--tls-island-ca"), ": \"", path,
                     "\" holds no certificate"));
  }
  const TrustAnchors trusted(material.ca_pem);
  for (Certificate& island_ca : island_cas) {
    std::vector<Certificate> chain;
    chain.push_back(std::move(island_ca));
    if (trusted.Verify(chain, X509_PURPOSE_ANY, std::nullopt).ok()) {
      return absl::InvalidArgumentError(absl::StrCat(
          FlagOf(files, files.ca, "--tls-ca"), ": \"", files.ca,
          "\" trusts the island CA too, whose certificates would count for "
          "every role: give the service CA alone, as `atoll ca issue` writes "
          "it to ca.crt"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

void UseTlsDirectory(const std::string& directory, TlsFiles& files) {
  files.dir = directory;
  const auto fill = [&](std::string& path, absl::string_view name) {
    if (path.empty()) path = absl::StrCat(directory, "/", name);
  };
  fill(files.cert, "tls.crt");
  fill(files.key, "tls.key");
  fill(files.ca, "ca.crt");
}

std::string IslandCaPath(const TlsFiles& files) {
  if (!files.island_ca.empty() || files.dir.empty()) return files.island_ca;
  return files.dir + "/island-ca.crt";
}

bool HasIslandCa(const TlsFiles& files) {
  const std::string path = IslandCaPath(files);
  return !path.empty() && Exists(path);
}

std::string RevocationListPath(const TlsFiles& files) {
  return files.dir.empty() ? "" : files.dir + "/crl.pem";
}

absl::Status CheckTlsFiles(const TlsFiles& files) {
  if (files.empty() && files.island_ca.empty()) return absl::OkStatus();
  std::string missing;
  const auto check = [&](absl::string_view flag, const std::string& path) {
    if (!path.empty()) return;
    absl::StrAppend(&missing, missing.empty() ? "" : ", ", flag);
  };
  check("--tls-cert", files.cert);
  check("--tls-key", files.key);
  check("--tls-ca", files.ca);
  const bool several = absl::StrContains(missing, ",");
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "TLS is mutual and needs --tls-dir, or all of --tls-cert, --tls-key and "
      "--tls-ca; ",
      missing, several ? " are missing" : " is missing"));
}

absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsFiles& files,
                                         absl::Time now) {
  if (files.empty()) {
    return absl::InvalidArgumentError(
        "TLS needs --tls-dir, or --tls-cert, --tls-key and --tls-ca");
  }
  RETURN_IF_ERROR(CheckTlsFiles(files));
  const auto where = [&](const std::string& path, absl::string_view flag) {
    return absl::StrCat(FlagOf(files, path, flag), ": \"", path, "\"");
  };
  TlsMaterial material;
  ASSIGN_OR_RETURN(
      material.cert_pem,
      ReadPem(FlagOf(files, files.cert, "--tls-cert"), files.cert));
  RETURN_IF_ERROR(Annotate(CheckValidity(material.cert_pem, now),
                           where(files.cert, "--tls-cert")));
  ASSIGN_OR_RETURN(material.key_pem,
                   ReadPem(FlagOf(files, files.key, "--tls-key"), files.key));
  RETURN_IF_ERROR(Annotate(CheckKey(material.cert_pem, material.key_pem),
                           where(files.key, "--tls-key")));
  ASSIGN_OR_RETURN(material.ca_pem,
                   ReadPem(FlagOf(files, files.ca, "--tls-ca"), files.ca));
  if (ReadCertificates(material.ca_pem).empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        where(files.ca, "--tls-ca"), " holds no certificate"));
  }
  const std::string path = IslandCaPath(files);
  if (!files.island_ca.empty() || HasIslandCa(files)) {
    ASSIGN_OR_RETURN(material.island_ca_pem,
                     ReadPem(FlagOf(files, path, "--tls-island-ca"), path));
    RETURN_IF_ERROR(CheckIslandCa(files, path, material));
  }
  const std::string crl = RevocationListPath(files);
  if (!crl.empty() && Exists(crl)) {
    ASSIGN_OR_RETURN(material.crl_pem, ReadPem("--tls-dir", crl));
    RETURN_IF_ERROR(Annotate(
        RevocationList::Read(material.crl_pem, material.ca_pem).status(),
        absl::StrCat("--tls-dir: \"", crl, "\"")));
  }
  return material;
}

std::vector<std::string> FindUpperAuthorities(const std::string& ca_pem) {
  std::vector<std::string> names;
  for (const Certificate& ca : ReadCertificates(ca_pem)) {
    if (X509_check_ca(ca.get()) == 0 || X509_get_pathlen(ca.get()) == 0) {
      continue;
    }
    names.push_back(CommonNameOf(*ca));
  }
  return names;
}

absl::Status CheckKeyUse(const std::string& cert_pem, KeyUse use) {
  ASSIGN_OR_RETURN(const Certificate certificate, FindCertificate(cert_pem));
  return CheckKeyUse(*certificate, use);
}

absl::Status CheckKeyUse(X509& certificate, KeyUse use) {
  // All bits are set if there is no extension.
  const uint32_t flags = X509_get_extended_key_usage(&certificate);
  const bool server = use == KeyUse::kServer;
  if (flags != UINT32_MAX &&
      (flags & (server ? XKU_SSL_SERVER : XKU_SSL_CLIENT)) != 0) {
    return absl::OkStatus();
  }
  return absl::UnauthenticatedError(absl::StrCat(
      "the certificate ", flags == UINT32_MAX ? "has no" : "has another",
      " extended key usage; it needs ", server ? "serverAuth" : "clientAuth",
      " (`atoll ca issue` sets it)"));
}

absl::Status CheckValidity(const std::string& cert_pem, absl::Time now) {
  ASSIGN_OR_RETURN(const Certificate certificate, FindCertificate(cert_pem));
  const absl::Time begin = ToTime(X509_get0_notBefore(certificate.get()));
  const absl::Time end = ToTime(X509_get0_notAfter(certificate.get()));
  if (now > end) {
    return absl::UnauthenticatedError(absl::StrCat(
        "the certificate expired at ", Utc(end), "; a new one is needed"));
  }
  if (now < begin) {
    return absl::UnauthenticatedError(
        absl::StrCat("the certificate is valid from ", Utc(begin),
                     ", and it is ", Utc(now), " here; is the clock right?"));
  }
  return absl::OkStatus();
}

absl::Status CheckKey(const std::string& cert_pem, const std::string& key_pem) {
  const PrivateKey key = ReadPrivateKey(key_pem);
  if (key == nullptr) {
    return absl::InvalidArgumentError(
        "holds no private key that can be read without a password");
  }
  const Certificate certificate = ReadFirstCertificate(cert_pem);
  if (certificate == nullptr ||
      X509_check_private_key(certificate.get(), key.get()) != 1) {
    return absl::InvalidArgumentError(
        "is not the key of the certificate that --tls-cert names");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadCommonName(const std::string& cert_pem) {
  ASSIGN_OR_RETURN(const Certificate certificate, FindCertificate(cert_pem));
  std::string name = CommonNameOf(*certificate);
  if (name.empty()) {
    return absl::NotFoundError("the certificate has no common name");
  }
  return name;
}

}  // namespace atl::rpc
