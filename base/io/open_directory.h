// A directory that others may change meanwhile: it is opened once, and its
// names are looked up in it, whatever its path comes to mean. A link in it is
// never followed.
//
// Calls reach the FileSystem as /proc/self/fd/N/NAME, which is openat without
// another seam. Errors name the path that a person gave.
//
// Thread-compatible.

#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/io/file_system.h"
#include "base/io/unique_fd.h"

namespace atl {

enum class NameUse {
  kFree,     // Nothing.
  kFile,     // A regular file of the process's effective user.
  kForeign,  // One of another user.
  kOther,    // A directory, a link, a device, ...
};

// Errors as of FileSystem.
class OpenDirectory {
 public:
  // Follows `path` if it is a link. `file_system` must outlive the object.
  static absl::StatusOr<std::unique_ptr<OpenDirectory>> Open(
      FileSystem &file_system, const std::string &path);

  // The same for a directory that this program fills: made with mode 0700, and
  // refused if its owner is not trusted. Errors as MakePrivateDirectory.
  static absl::StatusOr<std::unique_ptr<OpenDirectory>> MakePrivate(
      FileSystem &file_system, const std::string &path);

  // Opens a directory in this one. Its owner must be trusted
  // (private_directory.h), or FAILED_PRECONDITION, as for a link.
  absl::StatusOr<std::unique_ptr<OpenDirectory>> OpenSubdirectory(
      const std::string &name) const;
  // The same; makes it, with mode 0700, if it is missing.
  absl::StatusOr<std::unique_ptr<OpenDirectory>> MakeSubdirectory(
      const std::string &name) const;

  // The same for directories that several users share: any owner is right, and
  // a new one has mode 0777 without the umask's bits.
  absl::StatusOr<std::unique_ptr<OpenDirectory>> OpenSharedSubdirectory(
      const std::string &name) const;
  absl::StatusOr<std::unique_ptr<OpenDirectory>> MakeSharedSubdirectory(
      const std::string &name) const;

  std::string PathOf(absl::string_view name) const;
  // FAILED_PRECONDITION: the directory's owner is not trusted.
  absl::Status CheckOwner() const;
  // Takes all access from others, if the directory is this user's.
  absl::Status MakePrivateAgain() const;

  absl::StatusOr<NameUse> FindUse(const std::string &name) const;
  // The status of a name; a link is not followed. nullopt: the name is free or
  // cannot be read.
  std::optional<struct stat> Look(const std::string &name) const;
  // openat(2), with O_NOFOLLOW and O_CLOEXEC. A new file has mode 0644 without
  // the umask's bits. FAILED_PRECONDITION: it is a link.
  absl::StatusOr<UniqueFd> OpenFile(const std::string &name, int flags) const;
  // The same. FAILED_PRECONDITION: also if it is no regular file, its owner is
  // not trusted, or `flags` allow to write and it has a second name, which
  // another user may have given to a file of this one.
  absl::StatusOr<UniqueFd> OpenTrusted(const std::string &name,
                                       int flags) const;
  // Opens a file for reading. FAILED_PRECONDITION: it is not kFile.
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForRead(
      const std::string &name) const;
  // Reads a file. Errors: also RESOURCE_EXHAUSTED: it has more than `bytes_max`
  // bytes.
  absl::StatusOr<std::string> Read(const std::string &name,
                                   int64_t bytes_max) const;
  // True if `name` is the open file `fd`.
  bool IsNamed(int fd, const std::string &name) const;

  // A file of OpenFile, open for writing; its errors name `name`.
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForWrite(
      int fd, const std::string &name) const;
  // Makes a file and opens it for writing. ALREADY_EXISTS: the name is in use.
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Create(
      const std::string &name);
  // Writes a new file, durably, and gives it the name. A link there is
  // replaced, not followed. A crash may leave NAME.ID.tmp.
  absl::Status Replace(const std::string &name, absl::string_view bytes);
  absl::Status Rename(const std::string &from, const std::string &to);
  // Gives the file `from` a second name. ALREADY_EXISTS: `to` is in use.
  absl::Status Link(const std::string &from, const std::string &to);
  absl::Status Remove(const std::string &name);
  absl::StatusOr<std::vector<std::string>> List() const;
  absl::Status Sync();

 private:
  OpenDirectory(FileSystem &file_system, std::string path, UniqueFd fd);

  std::string At(absl::string_view name) const;
  // Makes a directory; OK if the name is in use.
  absl::Status Make(const std::string &name, mode_t mode) const;
  // Opens a file that must be kFile, for reading.
  absl::StatusOr<UniqueFd> OpenOwn(const std::string &name) const;
  // With the person's path instead of ours.
  absl::Status Explain(const absl::Status &status) const;

  FileSystem &file_system_;
  const std::string path_;
  const UniqueFd fd_;
  const std::string own_path_;  // /proc/self/fd/N.
};

}  // namespace atl
