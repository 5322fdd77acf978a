#include "cli/ca/issued_list.h"

#include <openssl/x509v3.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/revocation_list.h"
#include "base/rpc/certificates/tls.h"
#include "base/rpc/certificates/x509.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "cli/ca/ca_files.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

constexpr int64_t kCertificateBytesMax = 1 << 20;

absl::StatusOr<IssuedCertificate> ReadIssued(const std::string& cert_pem) {
  IssuedCertificate issued;
  ASSIGN_OR_RETURN(issued.serial, rpc::ReadSerial(cert_pem));
  ASSIGN_OR_RETURN(const rpc::CertificateFacts facts, rpc::ReadFacts(cert_pem));
  issued.end = facts.end;
  ASSIGN_OR_RETURN(issued.common_name, rpc::ReadCommonName(cert_pem));
  return issued;
}

// nullopt: the line is not whole.
std::optional<IssuedCertificate> ParseLine(absl::string_view line) {
  const std::vector<std::string> parts =
      absl::StrSplit(line, absl::MaxSplits(' ', 2));
  IssuedCertificate issued;
  std::string error;
  if (parts.size() != 3 ||
      !absl::ParseTime(absl::RFC3339_sec, parts[1], &issued.end, &error)) {
    return std::nullopt;
  }
  issued.serial = parts[0];
  issued.common_name = parts[2];
  return issued;
}

absl::StatusOr<rpc::RevocationList> ReadRevoked(const Ca& ca) {
  absl::StatusOr<rpc::RevocationList> list =
      rpc::RevocationList::Read(ca.crl_pem, ca.service.cert_pem);
  if (!list.ok()) {
    return Annotate(list.status(), FileIn(ca.directory, kCrlFile));
  }
  return list;
}

// The path of a certificate that `which` names; empty: it names no file.
std::string FindFile(const std::string& which) {
  std::error_code error;
  if (HoldsFile(which, kTlsCertFile)) return FileIn(which, kTlsCertFile);
  return std::filesystem::is_regular_file(which, error) ? which : "";
}

absl::StatusOr<IssuedCertificate> ReadOwn(const Ca& ca,
                                          const std::string& path) {
  ASSIGN_OR_RETURN(const std::string pem,
                   ReadFile(PosixFileSystem(), path, kCertificateBytesMax));
  std::vector<rpc::Certificate> leaf;
  leaf.push_back(rpc::ReadFirstCertificate(pem));
  if (leaf[0] == nullptr ||
      !rpc::VerifyChain(leaf, ca.service.cert_pem, X509_PURPOSE_ANY,
                        std::nullopt)
           .ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " holds no certificate of the CA in ", ca.directory));
  }
  return ReadIssued(pem);
}

// The certificates that `which` stands for.
absl::StatusOr<std::vector<IssuedCertificate>> Find(
    const Ca& ca, const std::vector<IssuedCertificate>& issued,
    const std::string& which, absl::Time now) {
  if (const std::string path = FindFile(which); !path.empty()) {
    ASSIGN_OR_RETURN(IssuedCertificate own, ReadOwn(ca, path));
    return std::vector<IssuedCertificate>{std::move(own)};
  }
  const std::string name =
      absl::StrCat("atoll:", absl::StripPrefix(which, "atoll:"));
  std::vector<IssuedCertificate> found;
  for (const IssuedCertificate& each : issued) {
    const bool is_named = each.common_name == name && each.end > now;
    if (is_named || each.serial == absl::AsciiStrToLower(which)) {
      found.push_back(each);
    }
  }
  if (!found.empty()) return found;
  return WithHint(
      absl::NotFoundError(absl::StrCat(
          "\"", which, "\" names no certificate of the CA in ", ca.directory,
          " that has not expired")),
      absl::StrCat("`atoll ca list --dir ", ca.directory,
                   "` lists them. Give ROLE:ID, a serial number, or the "
                   "certificate's file or directory."));
}

}  // namespace

absl::Status RecordIssued(const Ca& ca, const std::string& cert_pem) {
  if (ca.directory.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const IssuedCertificate issued, ReadIssued(cert_pem));
  return AppendToFileIn(
      ca.directory, kIssuedFile,
      absl::StrCat(issued.serial, " ",
                   absl::FormatTime(absl::RFC3339_sec, issued.end,
                                    absl::UTCTimeZone()),
                   " ", issued.common_name, "\n"));
}

absl::StatusOr<std::vector<IssuedCertificate>> ListIssued(const Ca& ca) {
  std::vector<IssuedCertificate> all;
  if (!HoldsFile(ca.directory, kIssuedFile)) return all;
  ASSIGN_OR_RETURN(const std::string text,
                   ReadFileIn(ca.directory, kIssuedFile));
  ASSIGN_OR_RETURN(const rpc::RevocationList revoked, ReadRevoked(ca));
  const std::vector<rpc::RevokedCertificate> entries = revoked.entries();
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    std::optional<IssuedCertificate> issued = ParseLine(line);
    if (!issued.has_value()) continue;
    for (const rpc::RevokedCertificate& entry : entries) {
      if (entry.serial == issued->serial) issued->revoked = entry.time;
    }
    all.push_back(*std::move(issued));
  }
  return all;
}

absl::StatusOr<std::vector<IssuedCertificate>> RevokeCertificates(
    const Ca& ca, const std::vector<std::string>& which, absl::Time now) {
  ASSIGN_OR_RETURN(const std::vector<IssuedCertificate> issued,
                   ListIssued(ca));
  ASSIGN_OR_RETURN(const rpc::RevocationList list, ReadRevoked(ca));
  std::vector<rpc::RevokedCertificate> entries = list.entries();
  std::vector<IssuedCertificate> revoked;
  for (const std::string& each : which) {
    ASSIGN_OR_RETURN(const std::vector<IssuedCertificate> found,
                     Find(ca, issued, each, now));
    for (IssuedCertificate one : found) {
      const auto entry =
          std::find_if(entries.begin(), entries.end(), [&](const auto& e) {
            return e.serial == one.serial;
          });
      one.revoked = entry == entries.end() ? now : entry->time;
      if (entry == entries.end()) entries.push_back({one.serial, now});
      revoked.push_back(std::move(one));
    }
  }
  ASSIGN_OR_RETURN(const std::string crl,
                   rpc::MakeRevocationList(ca.service, entries, now));
  RETURN_IF_ERROR(WriteFileIn(ca.directory, kCrlFile, crl));
  return revoked;
}

}  // namespace atl::cli
