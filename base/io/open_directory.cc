#include "base/io/open_directory.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/io/files.h"
#include "base/io/private_directory.h"
#include "base/random_id/random_id.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

std::string FdPath(int fd) { return absl::StrCat("/proc/self/fd/", fd); }

NameUse UseOf(const struct stat &status) {
  if (!S_ISREG(status.st_mode)) return NameUse::kOther;
  return status.st_uid == ::geteuid() ? NameUse::kFile : NameUse::kForeign;
}

absl::Status Rewrite(const absl::Status &status, const std::string &from,
                     const std::string &to) {
  if (status.ok()) return status;
  absl::Status rewritten(status.code(),
                         absl::StrReplaceAll(status.message(), {{from, to}}));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord &payload) {
    rewritten.SetPayload(type, payload);
  });
  return rewritten;
}

// A file whose errors name `path`, and not by which path it was opened.
class NamedFile : public RandomAccessFile {
 public:
  NamedFile(std::unique_ptr<RandomAccessFile> file, std::string opened,
            std::string path)
      : file_(std::move(file)),
        opened_(std::move(opened)),
        path_(std::move(path)) {}

  absl::StatusOr<int64_t> ReadAt(int64_t offset,
                                 absl::Span<char> out) const override {
    return Explain(file_->ReadAt(offset, out));
  }
  absl::Status WriteAt(int64_t offset,
                       absl::Span<const absl::string_view> pieces) override {
    return Rewrite(file_->WriteAt(offset, pieces), opened_, path_);
  }
  absl::Status WriteStraightAt(int64_t offset,
                               absl::string_view bytes) override {
    return Rewrite(file_->WriteStraightAt(offset, bytes), opened_, path_);
  }
  absl::Status Sync() override {
    return Rewrite(file_->Sync(), opened_, path_);
  }
  absl::Status Preallocate(int64_t size) override {
    return Rewrite(file_->Preallocate(size), opened_, path_);
  }
  absl::StatusOr<int64_t> Size() const override {
    return Explain(file_->Size());
  }

 private:
  absl::StatusOr<int64_t> Explain(absl::StatusOr<int64_t> result) const {
    if (result.ok()) return result;
    return Rewrite(result.status(), opened_, path_);
  }

  const std::unique_ptr<RandomAccessFile> file_;
  const std::string opened_;
  const std::string path_;
};

absl::StatusOr<std::unique_ptr<RandomAccessFile>> MakeNamedFile(
    absl::StatusOr<std::unique_ptr<RandomAccessFile>> file,
    const std::string &opened, const std::string &path) {
  if (!file.ok()) return Rewrite(file.status(), opened, path);
  return std::make_unique<NamedFile>(*std::move(file), opened, path);
}

}  // namespace

OpenDirectory::OpenDirectory(FileSystem &file_system, std::string path,
                             UniqueFd fd)
    : file_system_(file_system),
      path_(std::move(path)),
      fd_(std::move(fd)),
      own_path_(FdPath(fd_.get())) {}

absl::StatusOr<std::unique_ptr<OpenDirectory>> OpenDirectory::Open(
    FileSystem &file_system, const std::string &path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoToStatus(errno, absl::StrCat("open ", path));
  return std::unique_ptr<OpenDirectory>(
      new OpenDirectory(file_system, path, std::move(fd)));
}

absl::StatusOr<std::unique_ptr<OpenDirectory>> OpenDirectory::MakePrivate(
    FileSystem &file_system, const std::string &path) {
  RETURN_IF_ERROR(MakePrivateDirectory(path));
  ASSIGN_OR_RETURN(std::unique_ptr<OpenDirectory> opened,
                   Open(file_system, path));
  // Not by its path, which may already be another directory's.
  RETURN_IF_ERROR(opened->CheckOwner());
  return opened;
}

absl::StatusOr<std::unique_ptr<OpenDirectory>>
OpenDirectory::OpenSharedSubdirectory(const std::string &name) const {
  UniqueFd fd(::openat(fd_.get(), name.c_str(),
                       O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOTDIR || errno == ELOOP) {
      return absl::FailedPreconditionError(absl::StrCat(
          PathOf(name), " is no directory: remove it, or give another ",
          "directory than ", path_));
    }
    return ErrnoToStatus(errno, absl::StrCat("open ", PathOf(name)));
  }
  return std::unique_ptr<OpenDirectory>(
      new OpenDirectory(file_system_, PathOf(name), std::move(fd)));
}

absl::StatusOr<std::unique_ptr<OpenDirectory>> OpenDirectory::OpenSubdirectory(
    const std::string &name) const {
  ASSIGN_OR_RETURN(std::unique_ptr<OpenDirectory> opened,
                   OpenSharedSubdirectory(name));
  RETURN_IF_ERROR(opened->CheckOwner());
  return opened;
}

absl::Status OpenDirectory::Make(const std::string &name, mode_t mode) const {
  if (::mkdirat(fd_.get(), name.c_str(), mode) == 0 || errno == EEXIST) {
    return absl::OkStatus();
  }
  return ErrnoToStatus(errno, absl::StrCat("make directory ", PathOf(name)));
}

absl::StatusOr<std::unique_ptr<OpenDirectory>> OpenDirectory::MakeSubdirectory(
    const std::string &name) const {
  RETURN_IF_ERROR(Make(name, 0700));
  return OpenSubdirectory(name);
}

absl::StatusOr<std::unique_ptr<OpenDirectory>>
OpenDirectory::MakeSharedSubdirectory(const std::string &name) const {
  RETURN_IF_ERROR(Make(name, 0777));
  return OpenSharedSubdirectory(name);
}

absl::Status OpenDirectory::CheckOwner() const {
  struct stat status = {};
  if (::fstat(fd_.get(), &status) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("stat ", path_));
  }
  return atl::CheckOwner(status, path_);
}

absl::Status OpenDirectory::MakePrivateAgain() const {
  struct stat status = {};
  if (::fstat(fd_.get(), &status) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("stat ", path_));
  }
  if (status.st_uid == ::geteuid() && (status.st_mode & 077) != 0 &&
      ::fchmod(fd_.get(), 0700) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("chmod ", path_));
  }
  return absl::OkStatus();
}

std::string OpenDirectory::PathOf(absl::string_view name) const {
  return absl::StrCat(path_, "/", name);
}

std::string OpenDirectory::At(absl::string_view name) const {
  return absl::StrCat(own_path_, "/", name);
}

absl::Status OpenDirectory::Explain(const absl::Status &status) const {
  return Rewrite(status, own_path_, path_);
}

absl::StatusOr<NameUse> OpenDirectory::FindUse(const std::string &name) const {
  struct stat status = {};
  if (::fstatat(fd_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
    return UseOf(status);
  }
  if (errno == ENOENT) return NameUse::kFree;
  return ErrnoToStatus(errno, absl::StrCat("stat ", PathOf(name)));
}

std::optional<struct stat> OpenDirectory::Look(const std::string &name) const {
  struct stat status = {};
  if (::fstatat(fd_.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    return std::nullopt;
  }
  return status;
}

absl::StatusOr<UniqueFd> OpenDirectory::OpenFile(const std::string &name,
                                                 int flags) const {
  UniqueFd fd(
      ::openat(fd_.get(), name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (fd.valid()) return fd;
  if (errno == ELOOP) {
    return absl::FailedPreconditionError(absl::StrCat(
        PathOf(name), " is a link, which is not followed: remove it, or give ",
        "another directory than ", path_));
  }
  return ErrnoToStatus(errno, absl::StrCat("open ", PathOf(name)));
}

absl::StatusOr<UniqueFd> OpenDirectory::OpenTrusted(const std::string &name,
                                                    int flags) const {
  // O_NONBLOCK: opening a pipe must not wait for its other end.
  ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(name, flags | O_NONBLOCK));
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("stat ", PathOf(name)));
  }
  RETURN_IF_ERROR(atl::CheckOwner(status, PathOf(name)));
  const bool writes = (flags & O_ACCMODE) != O_RDONLY;
  if (!S_ISREG(status.st_mode) || (writes && status.st_nlink > 1)) {
    return absl::FailedPreconditionError(absl::StrCat(
        PathOf(name), " is ",
        S_ISREG(status.st_mode) ? "also a file of another name"
                                : "no regular file",
        ": remove it, or give another directory than ", path_));
  }
  return fd;
}

absl::StatusOr<UniqueFd> OpenDirectory::OpenOwn(const std::string &name) const {
  // O_NONBLOCK: opening a pipe must not wait for its writer.
  ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(name, O_RDONLY | O_NONBLOCK));
  struct stat status = {};
  if (::fstat(fd.get(), &status) != 0) {
    return ErrnoToStatus(errno, absl::StrCat("stat ", PathOf(name)));
  }
  if (UseOf(status) == NameUse::kFile) return fd;
  return absl::FailedPreconditionError(
      absl::StrCat(PathOf(name), " is no regular file of this user"));
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenDirectory::OpenForRead(
    const std::string &name) const {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenOwn(name));
  return MakeNamedFile(file_system_.OpenForRead(FdPath(fd.get())),
                       FdPath(fd.get()), PathOf(name));
}

absl::StatusOr<std::string> OpenDirectory::Read(const std::string &name,
                                                int64_t bytes_max) const {
  ASSIGN_OR_RETURN(const UniqueFd fd, OpenOwn(name));
  absl::StatusOr<std::string> text =
      ReadFile(file_system_, FdPath(fd.get()), bytes_max);
  if (text.ok()) return text;
  return Rewrite(text.status(), FdPath(fd.get()), PathOf(name));
}

bool OpenDirectory::IsNamed(int fd, const std::string &name) const {
  struct stat open = {}, named = {};
  return ::fstat(fd, &open) == 0 &&
         ::fstatat(fd_.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

// Not by its name, which may already be another file's.
absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenDirectory::OpenForWrite(
    int fd, const std::string &name) const {
  return MakeNamedFile(file_system_.OpenForWrite(FdPath(fd)), FdPath(fd),
                       PathOf(name));
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenDirectory::Create(
    const std::string &name) {
  ASSIGN_OR_RETURN(const UniqueFd fd,
                   OpenFile(name, O_WRONLY | O_CREAT | O_EXCL));
  return OpenForWrite(fd.get(), name);
}

absl::Status OpenDirectory::Replace(const std::string &name,
                                    absl::string_view bytes) {
  const std::string temporary = absl::StrCat(name, ".", RandomId(), ".tmp");
  absl::Status status;
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                     Create(temporary));
    status = file->WriteAt(0, bytes);
    if (status.ok()) status = file->Sync();
  }
  if (status.ok()) status = Rename(temporary, name);
  if (status.ok()) return Sync();
  Remove(temporary).IgnoreError();
  return status;
}

absl::Status OpenDirectory::Rename(const std::string &from,
                                   const std::string &to) {
  return Explain(file_system_.Rename(At(from), At(to)));
}

absl::Status OpenDirectory::Link(const std::string &from,
                                 const std::string &to) {
  if (::linkat(fd_.get(), from.c_str(), fd_.get(), to.c_str(), 0) == 0) {
    return absl::OkStatus();
  }
  return ErrnoToStatus(errno, absl::StrCat("link ", PathOf(to)));
}

absl::Status OpenDirectory::Remove(const std::string &name) {
  return Explain(file_system_.Remove(At(name)));
}

absl::StatusOr<std::vector<std::string>> OpenDirectory::List() const {
  absl::StatusOr<std::vector<std::string>> names = file_system_.List(own_path_);
  if (names.ok()) return names;
  return Explain(names.status());
}

absl::Status OpenDirectory::Sync() {
  return Explain(file_system_.SyncDirectory(own_path_));
}

}  // namespace atl
