#include "cli/ca/certificate_directory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/io/private_directory.h"
#include "base/layout/ids.h"
#include "base/rpc/authorization.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/tls.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "cli/ca/ca_files.h"
#include "cli/ca/issued_list.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

// Whether the owner of a certificate listens, dials, and has runs of its own.
bool Serves(Role role) {
  return role == Role::kCoordinator || role == Role::kServer ||
         role == Role::kGate || role == Role::kData;
}
bool Dials(Role role) {
  return role != Role::kCoordinator && role != Role::kData;
}
bool HasRuns(Role role) {
  return role == Role::kIsland || role == Role::kReader;
}

// `directory` may hold the files of an interrupted `atoll ca issue` of this CA,
// but none of another CA.
absl::Status CheckNoOtherCa(const std::string& directory,
                            const std::string& cert_pem) {
  if (!HoldsFile(directory, kCaCertFile)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string found, ReadFileIn(directory, kCaCertFile));
  if (found == cert_pem) return absl::OkStatus();
  return WithHint(absl::AlreadyExistsError(absl::StrCat(
                      FileIn(directory, kCaCertFile),
                      " is the certificate of another CA and is not "
                      "overwritten")),
                  "Give another --out.");
}

absl::Status CheckHosts(const IssueOptions& options) {
  const absl::string_view role = RoleName(options.role);
  if (Serves(options.role) == options.hosts.empty()) {
    return options.hosts.empty()
               ? UsageError(
                     absl::StrCat("--host is missing: others dial a ", role),
                     "Give every name and address under which it is dialled: "
                     "--host c.example.org,192.0.2.7")
               : UsageError(
                     absl::StrCat("--host is only for a coordinator, a "
                                  "server, a gate or data; nobody dials the "
                                  "role ",
                                  role),
                     "");
  }
  for (const std::string& host : options.hosts) {
    const absl::Status status = rpc::CheckCertificateHost(host);
    if (!status.ok()) {
      return UsageError(absl::StrCat("--host: ", status.message()), "");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNotEnrolledName(const IssueOptions& options) {
  if (!HasRuns(options.role) || !IsEnrolledName(options.id)) {
    return absl::OkStatus();
  }
  return UsageError(
      absl::StrCat("--id: ", options.id, " begins with ", kEnrolledPrefix,
                   ", as the names do that a gate enrols"),
      "Choose another --id for an island or a reader.");
}

absl::Status CheckRuns(const IssueOptions& options) {
  const std::vector<std::string>& runs = options.runs;
  if (!runs.empty() && !HasRuns(options.role)) {
    return UsageError(
        absl::StrCat("--run is only for an island or a reader; "
                     "the role ",
                     RoleName(options.role), " is not tied to runs"),
        "");
  }
  if (runs.size() > 1 &&
      std::find(runs.begin(), runs.end(), kAnyRun) != runs.end()) {
    return UsageError("--run any stands for every run: give it alone", "");
  }
  for (const std::string& run : runs) {
    const absl::Status status = ValidateId("--run", run);
    if (!status.ok()) return UsageError(status.message(), "");
  }
  return absl::OkStatus();
}

absl::Status CheckIslandCa(const Ca& ca, Role role) {
  if (role != Role::kGate || ca.has_island_ca()) return absl::OkStatus();
  return WithHint(
      absl::FailedPreconditionError(
          "a gate needs an island CA, and this CA is of the older kind, with "
          "one key for everything"),
      "Make a CA in another directory: `atoll ca init --dir DIR`. Every "
      "program needs a certificate of it.");
}

// The CAs that stand above a certificate, for those who know only the root.
std::string ChainAbove(const Ca& ca, Role role) {
  if (!ca.has_island_ca()) return "";
  return ca.service.cert_pem + (Serves(role) ? ca.root.cert_pem : "");
}

std::vector<std::string> RunUris(const IssueOptions& options) {
  if (!HasRuns(options.role)) return {};
  std::vector<std::string> uris;
  for (const std::string& run : options.runs) {
    if (run == kAnyRun) continue;
    uris.push_back(MakeRunUri(run, options.role, options.id));
  }
  if (uris.empty()) uris.push_back(MakeAnyRunUri(options.role, options.id));
  return uris;
}

// The files of an issued certificate, in the order in which they are written.
// The key is last: without it the command can be repeated.
std::vector<std::pair<std::string, std::string>> ListFiles(
    const Ca& ca, Role role, rpc::KeyAndCertificate issued) {
  // Never the root: whoever trusts it for operators trusts its island CA too.
  std::vector<std::pair<std::string, std::string>> files = {
      {kCaCertFile, ca.service.cert_pem}};
  if (Serves(role) && ca.has_island_ca()) {
    files.push_back({kIslandCaCertFile, ca.island.cert_pem});
  }
  if (role == Role::kGate) {
    files.push_back({kIslandCaKeyFile, ca.island.key_pem});
  }
  if (!ca.crl_pem.empty()) files.push_back({kCrlFile, ca.crl_pem});
  files.push_back({kTlsCertFile, issued.cert_pem + ChainAbove(ca, role)});
  files.push_back({kTlsKeyFile, std::move(issued.key_pem)});
  return files;
}

struct Renewed {
  IssuedFiles files;
  std::string chain_pem;
};

absl::StatusOr<Renewed> Renew(const Ca& ca, const std::string& directory,
                              absl::Time now, absl::Duration lifetime) {
  ASSIGN_OR_RETURN(const std::string old_pem,
                   ReadFileIn(directory, kTlsCertFile));
  const std::string path = FileIn(directory, kTlsCertFile);
  absl::StatusOr<std::string> pem = rpc::ReissueCertificate(
      ca.service, old_pem, now - kBeginBack, now + lifetime);
  if (!pem.ok()) return Annotate(pem.status(), path);
  Renewed renewed;
  renewed.files.directory = directory;
  renewed.files.files = {kTlsCertFile};
  ASSIGN_OR_RETURN(renewed.files.common_name, rpc::ReadCommonName(*pem));
  ASSIGN_OR_RETURN(const rpc::CertificateFacts facts, rpc::ReadFacts(*pem));
  renewed.files.end = facts.end;
  const absl::StatusOr<rpc::Caller> owner =
      rpc::ParseCommonName(renewed.files.common_name);
  if (!owner.ok()) return Annotate(owner.status(), path);
  renewed.chain_pem = *std::move(pem) + ChainAbove(ca, owner->role);
  return renewed;
}

}  // namespace

absl::StatusOr<IssuedFiles> IssueFiles(const Ca& ca,
                                       const IssueOptions& options,
                                       absl::Time now) {
  if (const absl::Status status = ValidateId("--id", options.id);
      !status.ok()) {
    return UsageError(status.message(), "");
  }
  RETURN_IF_ERROR(CheckNotEnrolledName(options));
  RETURN_IF_ERROR(CheckHosts(options));
  RETURN_IF_ERROR(CheckRuns(options));
  RETURN_IF_ERROR(CheckIslandCa(ca, options.role));
  if (HoldsFile(options.out, kTlsKeyFile)) {
    return WithHint(
        absl::AlreadyExistsError(
            absl::StrCat(FileIn(options.out, kTlsKeyFile),
                         " exists and is not overwritten")),
        absl::StrCat("`atoll ca renew --dir CA ", options.out,
                     "` makes its certificate valid for longer. Else give "
                     "another --out."));
  }
  RETURN_IF_ERROR(CheckNoOtherCa(options.out, ca.service.cert_pem));
  IssuedFiles issued;
  issued.directory = options.out;
  issued.common_name =
      absl::StrCat("atoll:", RoleName(options.role), ":", options.id);
  ASSIGN_OR_RETURN(
      const rpc::KeyAndCertificate made,
      rpc::IssueCertificate(ca.service, {.common_name = issued.common_name,
                                         .hosts = options.hosts,
                                         .uris = RunUris(options),
                                         .server_auth = Serves(options.role),
                                         .client_auth = Dials(options.role),
                                         .begin = now - kBeginBack,
                                         .end = now + options.lifetime}));
  ASSIGN_OR_RETURN(const rpc::CertificateFacts facts,
                   rpc::ReadFacts(made.cert_pem));
  issued.end = facts.end;
  // Before it exists outside: `ca revoke` must find each.
  RETURN_IF_ERROR(RecordIssued(ca, made.cert_pem));
  RETURN_IF_ERROR(MakePrivateDirectory(options.out));
  for (const auto& [file, text] : ListFiles(ca, options.role, made)) {
    RETURN_IF_ERROR(WriteFileIn(options.out, file, text));
    issued.files.push_back(file);
  }
  return issued;
}

absl::StatusOr<std::vector<IssuedFiles>> RenewFiles(
    const Ca& ca, const std::vector<std::string>& directories, absl::Time now,
    absl::Duration lifetime) {
  std::vector<Renewed> all;
  for (const std::string& directory : directories) {
    ASSIGN_OR_RETURN(Renewed renewed, Renew(ca, directory, now, lifetime));
    all.push_back(std::move(renewed));
  }
  std::vector<IssuedFiles> written;
  for (Renewed& renewed : all) {
    RETURN_IF_ERROR(RecordIssued(ca, renewed.chain_pem));
    if (!ca.crl_pem.empty()) {
      RETURN_IF_ERROR(
          WriteFileIn(renewed.files.directory, kCrlFile, ca.crl_pem));
    }
    RETURN_IF_ERROR(
        WriteFileIn(renewed.files.directory, kTlsCertFile, renewed.chain_pem));
    written.push_back(std::move(renewed.files));
  }
  return written;
}

}  // namespace atl::cli
