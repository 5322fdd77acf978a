#include "worker/island/group/rendezvous.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/codec/sha256.h"
#include "base/host_port/host_port.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/io/private_directory.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl::worker {
namespace {

constexpr size_t kSecretBytesMin = 16;
constexpr size_t kMachineSecretBytes = 32;
constexpr int64_t kFileBytesMax = 1 << 20;

struct Draft {
  ~Draft() {
    if (fd >= 0) ::close(fd);
    ::unlink(path.c_str());
  }
  std::string path;
  int fd = -1;
};

// Creates the file with random bytes, atomically, unless another process is
// faster. Only its owner can read it.
absl::Status MakeMachineSecret(const std::string& path) {
  RETURN_IF_ERROR(MakePrivateDirectory(ParentDirectory(path)));
  std::string bytes(kMachineSecretBytes, '\0');
  if (::getrandom(bytes.data(), bytes.size(), 0) !=
      static_cast<ssize_t>(bytes.size())) {
    return ErrnoToStatus(errno, "getrandom");
  }
  Draft draft{absl::StrCat(path, ".XXXXXX")};
  draft.fd = ::mkostemp(draft.path.data(), O_CLOEXEC);  // Its mode is 0600.
  if (draft.fd < 0) return ErrnoToStatus(errno, draft.path);
  if (::write(draft.fd, bytes.data(), bytes.size()) !=
          static_cast<ssize_t>(bytes.size()) ||
      ::fsync(draft.fd) != 0) {
    return ErrnoToStatus(errno, draft.path);
  }
  if (::link(draft.path.c_str(), path.c_str()) != 0 && errno != EEXIST) {
    return ErrnoToStatus(errno, path);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> MachineSecret(const std::string& path) {
  struct stat found = {};
  if (::stat(path.c_str(), &found) != 0) {
    RETURN_IF_ERROR(MakeMachineSecret(path));
    if (::stat(path.c_str(), &found) != 0) return ErrnoToStatus(errno, path);
  }
  if (found.st_uid != ::geteuid() ||
      (found.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " is the secret of this machine's processes, but other users may "
        "read or write it: remove the file, and the next start makes a new "
        "one"));
  }
  return ReadFile(PosixFileSystem(), path, kFileBytesMax);
}

absl::StatusOr<std::string> SecretBytes(const RendezvousOptions& options,
                                        bool loopback) {
  if (!options.secret_path.empty()) {
    ASSIGN_OR_RETURN(
        std::string bytes,
        ReadFile(PosixFileSystem(), options.secret_path, kFileBytesMax));
    // Ignores the newline of an editor.
    bytes = std::string(absl::StripTrailingAsciiWhitespace(bytes));
    if (bytes.size() < kSecretBytesMin) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the secret in ", options.secret_path, " has ", bytes.size(),
          " bytes, which can be guessed; `openssl rand -hex 32` makes a good "
          "one"));
    }
    return bytes;
  }
  if (!options.tls_key_path.empty()) {
    return ReadFile(PosixFileSystem(), options.tls_key_path, kFileBytesMax);
  }
  if (loopback) return MachineSecret(options.machine_secret_path);
  if (options.insecure) return std::string();
  return absl::InvalidArgumentError(absl::StrCat(
      "the rendezvous ", options.address,
      " is not on this machine, and there is no secret: give all processes the "
      "same --rendezvous-secret FILE, or the island's --tls-key; with "
      "--insecure any process may join, without encryption"));
}

}  // namespace

absl::StatusOr<Rendezvous> MakeRendezvous(const RendezvousOptions& options) {
  ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(options.address));
  const bool loopback = IsLoopbackHost(address.host);
  const absl::StatusOr<std::string> bytes = SecretBytes(options, loopback);
  if (!bytes.ok()) {
    return Annotate(bytes.status(), "the rendezvous has no secret");
  }
  Rendezvous rendezvous;
  rendezvous.secret = codec::ToHex(codec::ComputeSha256(
      absl::StrCat("atoll rendezvous\n", options.run_id, "\n",
                   options.island_id, "\n", *bytes)));
  rendezvous.in_the_clear = loopback || options.insecure;
  return rendezvous;
}

}  // namespace atl::worker
