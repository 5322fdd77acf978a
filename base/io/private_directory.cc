#include "base/io/private_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/io/unique_fd.h"
#include "base/obs/log.h"
#include "base/status/annotate.h"
#include "base/status/refusal.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

// As many as Linux follows.
constexpr int kLinksMax = 40;

bool IsTrusted(uid_t uid) { return uid == 0 || uid == ::geteuid(); }

// True if all users may replace the names in a directory.
bool IsOpenToAll(const struct stat& status) {
  return (status.st_mode & S_IWOTH) != 0 && (status.st_mode & S_ISVTX) == 0;
}

absl::Status NotOurs(absl::string_view message) {
  return Refuse(absl::StatusCode::kFailedPrecondition, "NOT_OURS", message);
}

// True if `uid` may be root's: a user namespace without root shows root's files
// as of the overflow user.
bool MayBeRoot(uid_t uid) {
  uid_t overflow = 0, first = 0, outside = 0, count = 0;
  std::ifstream("/proc/sys/kernel/overflowuid") >> overflow;
  std::ifstream("/proc/self/uid_map") >> first >> outside >> count;
  const bool has_all_users = first == 0 && outside == 0 && count == 0xffffffff;
  return uid == overflow && !has_all_users;
}

absl::StatusOr<struct stat> Stat(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) return status;
  return ErrnoToStatus(errno, absl::StrCat("stat ", path));
}

// Not std::filesystem::is_empty: the directory stays the one that is open.
bool IsEmpty(int fd) {
  UniqueFd again(::openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const directory = again.valid() ? ::fdopendir(again.get()) : nullptr;
  if (directory == nullptr) return false;
  again.Release();
  int count = 0;
  while (::readdir(directory) != nullptr) ++count;
  ::closedir(directory);
  return count <= 2;  // "." and "..".
}

}  // namespace

absl::Status CheckOwner(const struct stat& status, const std::string& path) {
  if (IsTrusted(status.st_uid)) return absl::OkStatus();
  return NotOurs(absl::StrCat(
      path, " belongs to user ", status.st_uid, ", not to this user (",
      ::geteuid(), ") or root: give another path, or remove it"));
}

absl::Status MakePrivateDirectory(const std::string& given) {
  // "DIR/" would follow a link, and DIR would be its parent.
  std::string path = given;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  RETURN_IF_ERROR(PosixFileSystem().CreateDirectories(ParentDirectory(path)));
  const bool made = ::mkdir(path.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) {
    return ErrnoToStatus(errno, absl::StrCat("make directory ", path));
  }
  RETURN_IF_ERROR(FollowTrustedLinks(path).status());
  ASSIGN_OR_RETURN(const struct stat status, Stat(path));
  if (!S_ISDIR(status.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is no directory: give another path"));
  }
  RETURN_IF_ERROR(CheckOwner(status, path));
  // A power cut must not lose the directory with its files.
  std::string parent = path;
  for (int level = 0; level < 2; ++level) {
    parent = ParentDirectory(parent);
    const absl::Status synced = PosixFileSystem().SyncDirectory(parent);
    // Inside a sandbox parents cannot be read: `path` was made, and synced,
    // before.
    if (!made && absl::IsPermissionDenied(synced)) continue;
    RETURN_IF_ERROR(synced);
  }
  return absl::OkStatus();
}

absl::Status PrepareDataDirectory(const std::string& path) {
  RETURN_IF_ERROR(MakePrivateDirectory(path));
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat status = {};
  if (!fd.valid() || ::fstat(fd.get(), &status) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("open ", path));
  }
  RETURN_IF_ERROR(CheckOwner(status, path));
  if ((status.st_mode & S_IRWXO) == 0) return absl::OkStatus();
  if (status.st_uid == ::geteuid() && IsEmpty(fd.get()) &&
      ::fchmod(fd.get(), 0700) == 0) {
    return absl::OkStatus();
  }
  LOG(WARNING) << "all users of this machine may "
               << (IsOpenToAll(status) ? "change " : "look into ") << path
               << ": `chmod o= " << path << "` keeps them out";
  return absl::OkStatus();
}

absl::Status CheckPathOwners(const std::string& path) {
  for (std::string at = path;; at = ParentDirectory(at)) {
    ASSIGN_OR_RETURN(const struct stat status, Stat(at));
    if (at == path || !MayBeRoot(status.st_uid)) {
      RETURN_IF_ERROR(CheckOwner(status, at));
    }
    if (IsOpenToAll(status)) {
      return NotOurs(absl::StrCat(
          "any user may replace what is in ", at,
          ": give a directory in another place, or `chmod +t ", at, "`"));
    }
    if (at == "/" || at == ".") return absl::OkStatus();
  }
}

absl::StatusOr<std::string> FollowTrustedLinks(const std::string& path) {
  std::string at = path;
  for (int i = 0; i < kLinksMax; ++i) {
    struct stat status = {};
    // The kernel itself makes those of /proc, whose text may be no path.
    if (::lstat(at.c_str(), &status) != 0 || !S_ISLNK(status.st_mode) ||
        absl::StartsWith(at, "/proc/")) {
      return at;
    }
    RETURN_IF_ERROR(CheckOwner(status, at));
    std::error_code error;
    const auto target = std::filesystem::read_symlink(at, error);
    if (error) return ErrnoToStatus(error.value(), absl::StrCat("follow ", at));
    at = (std::filesystem::path(at).parent_path() / target).string();
  }
  return ErrnoToStatus(ELOOP, absl::StrCat("follow ", path));
}

}  // namespace atl
