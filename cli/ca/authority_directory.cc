#include "cli/ca/authority_directory.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/io/private_directory.h"
#include "base/rpc/certificates/tls.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "cli/ca/ca_files.h"
#include "cli/output/error.h"
#include "cli/output/table.h"

namespace atl::cli {
namespace {

// In the order in which they are written.
constexpr const char* kLowerFiles[] = {kIslandCaKeyFile, kIslandCaCertFile,
                                       kServiceCaKeyFile, kServiceCaCertFile};

// The names of the root's files.
struct RootFiles {
  const char* cert;
  const char* key;
};

RootFiles FindRootFiles(const std::string& directory) {
  const auto holds = [&](const char* file) {
    return HoldsFile(directory, file);
  };
  if (!holds(kRootCertFile) && !holds(kRootKeyFile) &&
      (holds(kCaCertFile) || holds(kCaKeyFile))) {
    return {kCaCertFile, kCaKeyFile};
  }
  return {kRootCertFile, kRootKeyFile};
}

enum class Kind { kNone, kSingle, kTree };

absl::Status PartOfACa(const std::string& directory,
                       const std::vector<std::string>& found,
                       const std::vector<std::string>& missing) {
  const bool complete =
      HoldsFile(directory, FindRootFiles(directory).cert);
  return absl::FailedPreconditionError(absl::StrCat(
      directory, " holds ", absl::StrJoin(found, ", "), " without ",
      absl::StrJoin(missing, ", "),
      complete
          ? ": add what is missing, or choose another directory"
          : ": add what is missing; if an interrupted `atoll ca init` left "
            "it, remove what is there and run the command again"));
}

absl::StatusOr<Kind> FindCa(const std::string& directory) {
  std::vector<std::string> found;
  std::vector<std::string> missing;
  for (const char* file : kLowerFiles) {
    (HoldsFile(directory, file) ? found : missing).push_back(file);
  }
  const bool tree = !found.empty();
  if (!tree) missing.clear();
  const RootFiles root = FindRootFiles(directory);
  for (const char* file : {root.key, root.cert}) {
    if (HoldsFile(directory, file)) {
      found.push_back(file);
    } else if (!tree || file == root.cert) {
      missing.push_back(file);
    }
  }
  if (found.empty()) return Kind::kNone;
  if (!missing.empty()) return PartOfACa(directory, found, missing);
  return tree ? Kind::kTree : Kind::kSingle;
}

absl::StatusOr<rpc::KeyAndCertificate> ReadPair(const std::string& directory,
                                                const char* cert_file,
                                                const char* key_file,
                                                bool needs_key = true) {
  rpc::KeyAndCertificate pair;
  ASSIGN_OR_RETURN(pair.cert_pem, ReadFileIn(directory, cert_file));
  if (!needs_key && !HoldsFile(directory, key_file)) return pair;
  ASSIGN_OR_RETURN(pair.key_pem, ReadFileIn(directory, key_file));
  if (rpc::CheckKey(pair.cert_pem, pair.key_pem).ok()) return pair;
  return absl::InvalidArgumentError(absl::StrCat(
      FileIn(directory, key_file), " is not the key of the certificate in ",
      FileIn(directory, cert_file)));
}

// As ReadCa, but the certificates may have expired.
absl::StatusOr<Ca> ReadFiles(const std::string& directory) {
  ASSIGN_OR_RETURN(const Kind kind, FindCa(directory));
  if (kind == Kind::kNone) {
    return WithHint(
        absl::NotFoundError(absl::StrCat(directory, " holds no CA")),
        absl::StrCat("`atoll ca init --dir ", directory, "` makes one."));
  }
  Ca ca;
  ca.directory = directory;
  const RootFiles root = FindRootFiles(directory);
  ca.root_cert_file = root.cert;
  if (HoldsFile(directory, kCrlFile)) {
    ASSIGN_OR_RETURN(ca.crl_pem, ReadFileIn(directory, kCrlFile));
  }
  // Only the root's key may be away.
  ASSIGN_OR_RETURN(
      ca.root, ReadPair(directory, root.cert, root.key, /*needs_key=*/false));
  if (kind == Kind::kTree) {
    ASSIGN_OR_RETURN(
        ca.service, ReadPair(directory, kServiceCaCertFile, kServiceCaKeyFile));
    ASSIGN_OR_RETURN(ca.island,
                     ReadPair(directory, kIslandCaCertFile, kIslandCaKeyFile));
    return ca;
  }
  ASSIGN_OR_RETURN(const rpc::CertificateFacts facts,
                   rpc::ReadFacts(ca.root.cert_pem));
  // A root must not sign certificates itself: whoever trusts it for them would
  // trust its island CA too.
  if (facts.path_length > 0) {
    return PartOfACa(directory, {root.cert},
                     {std::begin(kLowerFiles), std::end(kLowerFiles)});
  }
  ca.service = ca.root;
  return ca;
}

// The certificates of `ca`, each with the file that holds it.
std::vector<std::pair<std::string, std::string*>> CertificatesOf(Ca& ca) {
  if (!ca.has_island_ca()) return {{ca.root_cert_file, &ca.root.cert_pem}};
  return {{ca.root_cert_file, &ca.root.cert_pem},
          {kServiceCaCertFile, &ca.service.cert_pem},
          {kIslandCaCertFile, &ca.island.cert_pem}};
}

std::string RenewCommand(const std::string& directory) {
  return absl::StrCat("`atoll ca renew --dir ", directory,
                      " --authorities`, with the root's key, renews it.");
}

absl::StatusOr<Ca> MakeCa(absl::Time begin, absl::Time end) {
  Ca ca;
  ASSIGN_OR_RETURN(ca.root, rpc::MakeAuthority("atoll root CA", begin, end, 1));
  rpc::CertificateSpec spec;
  spec.common_name = "atoll service CA";
  spec.begin = begin;
  spec.end = end;
  ASSIGN_OR_RETURN(ca.service, rpc::IssueAuthority(ca.root, spec));
  spec.common_name = "atoll island CA";
  spec.client_auth = true;  // Alone: there is no server below it.
  ASSIGN_OR_RETURN(ca.island, rpc::IssueAuthority(ca.root, spec));
  return ca;
}

absl::Status WriteCa(const std::string& directory, const Ca& ca) {
  RETURN_IF_ERROR(MakePrivateDirectory(directory));
  const auto write = [&](const char* file, const std::string& text) {
    return text.empty() ? absl::OkStatus() : WriteFileIn(directory, file, text);
  };
  if (ca.has_island_ca()) {
    RETURN_IF_ERROR(write(kIslandCaKeyFile, ca.island.key_pem));
    RETURN_IF_ERROR(write(kIslandCaCertFile, ca.island.cert_pem));
    RETURN_IF_ERROR(write(kServiceCaKeyFile, ca.service.key_pem));
    RETURN_IF_ERROR(write(kServiceCaCertFile, ca.service.cert_pem));
  }
  RETURN_IF_ERROR(write(kCrlFile, ca.crl_pem));
  if (!ca.directory.empty() && HoldsFile(ca.directory, kIssuedFile)) {
    ASSIGN_OR_RETURN(const std::string issued,
                     ReadFileIn(ca.directory, kIssuedFile));
    RETURN_IF_ERROR(write(kIssuedFile, issued));
  }
  // The older kind has no root that stands above others.
  const bool tree = ca.has_island_ca();
  RETURN_IF_ERROR(
      write(tree ? kRootKeyFile : kCaKeyFile, ca.root.key_pem));
  return write(tree ? kRootCertFile : kCaCertFile, ca.root.cert_pem);
}

}  // namespace

absl::StatusOr<Ca> ReadCa(const std::string& directory, absl::Time now) {
  ASSIGN_OR_RETURN(Ca ca, ReadFiles(directory));
  for (const auto& [file, pem] : CertificatesOf(ca)) {
    if (const absl::Status valid = rpc::CheckValidity(*pem, now); !valid.ok()) {
      return WithHint(Annotate(valid, FileIn(directory, file)),
                      RenewCommand(directory));
    }
  }
  return ca;
}

absl::StatusOr<CaOrigin> InitCa(const std::string& directory,
                                const std::string& existing, absl::Time now,
                                absl::Duration lifetime) {
  ASSIGN_OR_RETURN(const Kind kept, FindCa(directory));
  if (kept != Kind::kNone) {
    RETURN_IF_ERROR(ReadCa(directory, now).status());
    return CaOrigin::kKept;
  }
  Kind copied = Kind::kNone;
  if (!existing.empty()) {
    ASSIGN_OR_RETURN(copied, FindCa(existing));
  }
  Ca ca;
  if (copied != Kind::kNone) {
    ASSIGN_OR_RETURN(ca, ReadCa(existing, now));
  } else {
    ASSIGN_OR_RETURN(ca, MakeCa(now - kBeginBack, now + lifetime));
  }
  RETURN_IF_ERROR(WriteCa(directory, ca));
  return copied != Kind::kNone ? CaOrigin::kCopied : CaOrigin::kMade;
}

absl::StatusOr<std::vector<std::string>> RenewAuthorities(
    const std::string& directory, absl::Time now, absl::Duration lifetime) {
  ASSIGN_OR_RETURN(Ca ca, ReadFiles(directory));
  if (ca.root.key_pem.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(
        FileIn(directory, FindRootFiles(directory).key),
        " is missing: bring the root's key back for this command"));
  }
  const auto certificates = CertificatesOf(ca);
  for (const auto& [file, pem] : certificates) {
    // The root comes first, and signs itself.
    absl::StatusOr<std::string> renewed = rpc::ReissueCertificate(
        ca.root, *pem, now - kBeginBack, now + lifetime);
    if (!renewed.ok()) {
      return Annotate(renewed.status(), FileIn(directory, file));
    }
    *pem = *std::move(renewed);
  }
  std::vector<std::string> files;
  for (const auto& [file, pem] : certificates) {
    RETURN_IF_ERROR(WriteFileIn(directory, file, *pem));
    files.push_back(file);
  }
  return files;
}

std::vector<std::string> DescribeExpiry(const Ca& ca,
                                        const std::string& directory,
                                        absl::Time now) {
  std::vector<std::string> lines;
  Ca copy = ca;
  for (const auto& [file, pem] : CertificatesOf(copy)) {
    const absl::StatusOr<rpc::CertificateFacts> facts = rpc::ReadFacts(*pem);
    if (!facts.ok() || facts->end - now >= (facts->end - facts->begin) / 3) {
      continue;
    }
    lines.push_back(absl::StrCat(FileIn(directory, file), " is valid until ",
                                 FormatTimestamp(facts->end), " only. ",
                                 RenewCommand(directory)));
  }
  return lines;
}

}  // namespace atl::cli
