#include "cli/ca/authority_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/layout/ids.h"
#include "base/rpc/certificates/authority.h"
#include "base/rpc/certificates/tls.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"
#include "cli/output/error.h"

namespace atl::cli {
namespace {

constexpr int64_t kFileBytesMax = 1 << 20;
// How far back certificates begin.
constexpr absl::Duration kBack = absl::Minutes(5);

std::string In(const std::string& directory, absl::string_view name) {
  return absl::StrCat(directory, "/", name);
}

// Makes the directory for its owner alone; its parents as usual.
absl::Status MakeDirectory(const std::string& path) {
  FileSystem& fs = PosixFileSystem();
  RETURN_IF_ERROR(fs.CreateDirectories(ParentDirectory(path)));
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return ErrnoToStatus(errno, absl::StrCat("make directory ", path));
  }
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return ErrnoToStatus(errno, "write");
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return ::fsync(fd) == 0 ? absl::OkStatus() : ErrnoToStatus(errno, "fsync");
}

// As WriteFileAtomically, with a mode that holds from the first byte.
absl::Status WriteFileWithMode(const std::string& path, absl::string_view text,
                               mode_t mode) {
  const std::string temporary = path + ".tmp";
  ::unlink(temporary.c_str());
  const int fd =
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return ErrnoToStatus(errno, temporary);
  absl::Status status = Annotate(WriteAll(fd, text), temporary);
  ::close(fd);
  FileSystem& fs = PosixFileSystem();
  if (status.ok()) status = fs.Rename(temporary, path);
  if (status.ok()) return fs.SyncDirectory(ParentDirectory(path));
  ::unlink(temporary.c_str());
  return status;
}

// True if `directory` holds a CA, false if nothing of one.
absl::StatusOr<bool> HoldsCa(const std::string& directory) {
  FileSystem& fs = PosixFileSystem();
  const bool cert = fs.Exists(In(directory, kCaCertFile));
  const bool key = fs.Exists(In(directory, kCaKeyFile));
  if (cert == key) return cert;
  return absl::FailedPreconditionError(absl::StrCat(
      directory, " holds ", cert ? kCaCertFile : kCaKeyFile, " without ",
      cert ? kCaKeyFile : kCaCertFile,
      cert ? ": add the missing file, or choose another directory"
           : ": add the missing file; if an interrupted `atoll ca init` left "
             "it, remove the key and run the command again"));
}

absl::StatusOr<rpc::KeyAndCertificate> ReadCa(const std::string& directory,
                                              absl::Time now) {
  FileSystem& fs = PosixFileSystem();
  const std::string cert_path = In(directory, kCaCertFile);
  const std::string key_path = In(directory, kCaKeyFile);
  rpc::KeyAndCertificate ca;
  ASSIGN_OR_RETURN(ca.cert_pem, ReadFile(fs, cert_path, kFileBytesMax));
  ASSIGN_OR_RETURN(ca.key_pem, ReadFile(fs, key_path, kFileBytesMax));
  if (!rpc::CheckKey(ca.cert_pem, ca.key_pem).ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        key_path, " is not the key of the certificate in ", cert_path));
  }
  if (const absl::Status valid = rpc::CheckValidity(ca.cert_pem, now);
      !valid.ok()) {
    return WithHint(Annotate(valid, cert_path),
                    "Make a CA in another directory: `atoll ca init --dir "
                    "DIR`. Every program needs a certificate of it.");
  }
  return ca;
}

// `directory` may hold the files of an interrupted `atoll ca issue` of this CA,
// but none of another CA.
absl::Status CheckNoOtherCa(const std::string& directory,
                            const std::string& cert_pem) {
  FileSystem& fs = PosixFileSystem();
  const std::string path = In(directory, kCaCertFile);
  if (!fs.Exists(path)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::string found, ReadFile(fs, path, kFileBytesMax));
  if (found == cert_pem) return absl::OkStatus();
  return WithHint(
      absl::AlreadyExistsError(absl::StrCat(
          path, " is the certificate of another CA and is not overwritten")),
      "Give another --out.");
}

// Whether the owner of a certificate listens, and whether it dials.
bool Serves(rpc::Role role) {
  return role == rpc::Role::kCoordinator || role == rpc::Role::kServer;
}
bool Dials(rpc::Role role) { return role != rpc::Role::kCoordinator; }

absl::Status CheckHosts(const IssueOptions& options) {
  const absl::string_view role = rpc::RoleName(options.role);
  if (Serves(options.role) == options.hosts.empty()) {
    return options.hosts.empty()
               ? UsageError(
                     absl::StrCat("--host is missing: others dial a ", role),
                     "Give every name and address under which it is dialled: "
                     "--host c.example.org,192.0.2.7")
               : UsageError(absl::StrCat("--host is only for a coordinator or "
                                         "a server; nobody dials the role ",
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

}  // namespace

absl::StatusOr<CaOrigin> InitCa(const std::string& directory,
                                const std::string& existing, absl::Time now,
                                absl::Duration lifetime) {
  ASSIGN_OR_RETURN(const bool kept, HoldsCa(directory));
  if (kept) {
    RETURN_IF_ERROR(ReadCa(directory, now).status());
    return CaOrigin::kKept;
  }
  bool copied = false;
  if (!existing.empty()) {
    ASSIGN_OR_RETURN(copied, HoldsCa(existing));
  }
  rpc::KeyAndCertificate ca;
  if (copied) {
    ASSIGN_OR_RETURN(ca, ReadCa(existing, now));
  } else {
    ASSIGN_OR_RETURN(
        ca, rpc::MakeAuthority("atoll CA", now - kBack, now + lifetime));
  }
  RETURN_IF_ERROR(MakeDirectory(directory));
  RETURN_IF_ERROR(
      WriteFileWithMode(In(directory, kCaKeyFile), ca.key_pem, 0600));
  RETURN_IF_ERROR(
      WriteFileWithMode(In(directory, kCaCertFile), ca.cert_pem, 0644));
  return copied ? CaOrigin::kCopied : CaOrigin::kMade;
}

absl::StatusOr<std::string> IssueFiles(const IssueOptions& options,
                                       absl::Time now) {
  if (const absl::Status status = ValidateId("--id", options.id);
      !status.ok()) {
    return UsageError(status.message(), "");
  }
  RETURN_IF_ERROR(CheckHosts(options));
  const std::string key_path = In(options.out, kTlsKeyFile);
  if (PosixFileSystem().Exists(key_path)) {
    return WithHint(
        absl::AlreadyExistsError(
            absl::StrCat(key_path, " exists and is not overwritten")),
        "Give another --out, or remove the file if nobody needs the key.");
  }
  ASSIGN_OR_RETURN(const bool found, HoldsCa(options.directory));
  if (!found) {
    return WithHint(absl::NotFoundError(
                        absl::StrCat(options.directory, " holds no CA")),
                    absl::StrCat("`atoll ca init --dir ", options.directory,
                                 "` makes one."));
  }
  ASSIGN_OR_RETURN(const rpc::KeyAndCertificate ca,
                   ReadCa(options.directory, now));
  RETURN_IF_ERROR(CheckNoOtherCa(options.out, ca.cert_pem));
  const std::string name =
      absl::StrCat("atoll:", rpc::RoleName(options.role), ":", options.id);
  ASSIGN_OR_RETURN(const rpc::KeyAndCertificate issued,
                   rpc::IssueCertificate(ca, {.common_name = name,
                                              .hosts = options.hosts,
                                              .server_auth = Serves(options.role),
                                              .client_auth = Dials(options.role),
                                              .begin = now - kBack,
                                              .end = now + options.lifetime}));
  RETURN_IF_ERROR(MakeDirectory(options.out));
  RETURN_IF_ERROR(
      WriteFileWithMode(In(options.out, kCaCertFile), ca.cert_pem, 0644));
  RETURN_IF_ERROR(
      WriteFileWithMode(In(options.out, kTlsCertFile), issued.cert_pem, 0644));
  // Last: without it the command can be repeated.
  RETURN_IF_ERROR(WriteFileWithMode(key_path, issued.key_pem, 0600));
  return name;
}

}  // namespace atl::cli
