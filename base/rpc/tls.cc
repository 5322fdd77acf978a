#include "base/rpc/tls.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
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

struct BioFree {
  void operator()(BIO* bio) const { BIO_free(bio); }
};
struct CertificateFree {
  void operator()(X509* certificate) const { X509_free(certificate); }
};

// Infinitely long ago if `time` is malformed.
absl::Time ToTime(const ASN1_TIME* time) {
  std::tm parts = {};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return absl::InfinitePast();
  return absl::FromTM(parts, absl::UTCTimeZone());
}

std::string Utc(absl::Time time) {
  return absl::FormatTime(absl::RFC3339_sec, time, absl::UTCTimeZone());
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// True for four decimal numbers in [0, 255], the first of them 127.
bool IsLoopbackV4(absl::string_view host) {
  int parts[4];
  for (int i = 0; i < 4; ++i) {
    size_t length = 0;
    while (length < host.size() && IsDigit(host[length])) ++length;
    if (length == 0 || length > 3 ||
        !absl::SimpleAtoi(host.substr(0, length), &parts[i]) ||
        parts[i] > 255) {
      return false;
    }
    host.remove_prefix(length);
    if (i < 3) {
      if (host.empty() || host[0] != '.') return false;
      host.remove_prefix(1);
    }
  }
  return host.empty() && parts[0] == 127;
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(absl::string_view address) {
  const auto error = [&] {
    return absl::InvalidArgumentError(absl::StrCat(
        "\"", address, "\" is not an address of the form HOST:PORT"));
  };
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || colon == 0) return error();
  absl::string_view host = address.substr(0, colon);
  const absl::string_view port = address.substr(colon + 1);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return error();
    host = host.substr(1, host.size() - 2);
  } else if (absl::StrContains(host, ":")) {
    return error();
  }
  for (const char c : host) {
    const bool ok = IsDigit(c) || (c >= 'a' && c <= 'z') ||
                    (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
                    c == ':' || c == '_' || c == '%';
    if (!ok) return error();
  }
  HostPort result;
  result.host = std::string(host);
  if (port.empty() || port.size() > 5 || !IsDigit(port[0]) ||
      !absl::SimpleAtoi(port, &result.port) || result.port > 65535) {
    return error();
  }
  return result;
}

bool IsLoopbackHost(absl::string_view host) {
  return host == "localhost" || host == "::1" || IsLoopbackV4(host);
}

absl::Status CheckTlsFiles(const TlsFiles& files) {
  if (files.empty()) return absl::OkStatus();
  std::string missing;
  const auto check = [&](absl::string_view flag, const std::string& path) {
    if (!path.empty()) return;
    absl::StrAppend(&missing, missing.empty() ? "" : ", ", flag);
  };
  check("--tls_cert", files.cert);
  check("--tls_key", files.key);
  check("--tls_ca", files.ca);
  if (missing.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "TLS is mutual and needs all of --tls_cert, --tls_key and --tls_ca; ",
      missing, " is missing"));
}

absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsFiles& files) {
  if (files.empty()) {
    return absl::InvalidArgumentError(
        "TLS needs --tls_cert, --tls_key and --tls_ca");
  }
  RETURN_IF_ERROR(CheckTlsFiles(files));
  TlsMaterial material;
  ASSIGN_OR_RETURN(material.cert_pem, ReadPem("--tls_cert", files.cert));
  RETURN_IF_ERROR(Annotate(CheckValidity(material.cert_pem, absl::Now()),
                           absl::StrCat("--tls_cert: \"", files.cert, "\"")));
  ASSIGN_OR_RETURN(material.key_pem, ReadPem("--tls_key", files.key));
  ASSIGN_OR_RETURN(material.ca_pem, ReadPem("--tls_ca", files.ca));
  return material;
}

absl::Status CheckValidity(const std::string& cert_pem, absl::Time now) {
  const std::unique_ptr<BIO, BioFree> bio(
      BIO_new_mem_buf(cert_pem.data(), static_cast<int>(cert_pem.size())));
  const std::unique_ptr<X509, CertificateFree> certificate(
      PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  if (certificate == nullptr) {
    return absl::InvalidArgumentError("holds no certificate");
  }
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

}  // namespace atl::rpc
