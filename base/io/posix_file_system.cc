#include "base/io/posix_file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status/annotate.h"

namespace atl {
namespace {

absl::Status LastError(absl::string_view verb, const std::string& path) {
  return ErrnoToStatus(errno, absl::StrCat(verb, " ", path));
}

// Another user may have put a link in the place of a file to write. An open
// descriptor of this process is named by a link of the kernel.
int NoFollow(const std::string& path) {
  absl::string_view number = path;
  const bool is_open = absl::ConsumePrefix(&number, "/proc/self/fd/") &&
                       number.find('/') == absl::string_view::npos;
  return is_open ? 0 : O_NOFOLLOW;
}

absl::Status OpenError(const std::string& path) {
  if (errno != ELOOP) return LastError("open", path);
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is a link, which is not followed: remove it"));
}

class PosixFile : public RandomAccessFile {
 public:
  PosixFile(int fd, std::string path, bool writable)
      : fd_(fd), path_(std::move(path)), writable_(writable) {}
  ~PosixFile() override {
    close(fd_);
    if (straight_fd_ >= 0) close(straight_fd_);
  }

  absl::StatusOr<int64_t> ReadAt(int64_t offset,
                                 absl::Span<char> out) const override {
    size_t done = 0;
    while (done < out.size()) {
      const ssize_t n =
          pread(fd_, out.data() + done, out.size() - done, offset + done);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return LastError("read", path_);
      if (n == 0) break;
      done += n;
    }
    return done;
  }

  absl::Status WriteAt(int64_t offset,
                       absl::Span<const absl::string_view> pieces) override {
    constexpr size_t kPiecesMax = 64;
    iovec vectors[kPiecesMax];
    while (!pieces.empty()) {
      const size_t count = std::min(pieces.size(), kPiecesMax);
      for (size_t i = 0; i < count; ++i) {
        vectors[i] = {const_cast<char*>(pieces[i].data()), pieces[i].size()};
      }
      absl::Status status = WriteVectors(&offset, vectors, count);
      if (!status.ok()) return status;
      pieces.remove_prefix(count);
    }
    return absl::OkStatus();
  }

  absl::Status WriteStraightAt(int64_t offset,
                               absl::string_view bytes) override {
    const auto is_whole = [](uint64_t number) {
      return number % static_cast<uint64_t>(kStraightBytes) == 0;
    };
    if (!is_whole(offset) || !is_whole(bytes.size()) ||
        !is_whole(reinterpret_cast<uintptr_t>(bytes.data())) ||
        !writable_ || !OpenStraight()) {
      return RandomAccessFile::WriteStraightAt(offset, bytes);
    }
    while (!bytes.empty()) {
      const ssize_t n =
          pwrite(straight_fd_, bytes.data(), bytes.size(), offset);
      if (n < 0 && errno == EINTR) continue;
      // The disk needs larger multiples, or the file system lacks O_DIRECT.
      if ((n < 0 && errno == EINVAL) || (n >= 0 && !is_whole(n)) || n == 0) {
        return RandomAccessFile::WriteStraightAt(offset, bytes);
      }
      if (n < 0) return LastError("write", path_);
      offset += n;
      bytes.remove_prefix(n);
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    if (fdatasync(fd_) != 0) return LastError("sync", path_);
    return absl::OkStatus();
  }

  absl::Status Preallocate(int64_t size) override {
    const int error = size > 0 ? posix_fallocate(fd_, 0, size) : 0;
    if (error != 0) {
      return ErrnoToStatus(error,
                           absl::StrCat("reserve ", size, " bytes of ", path_));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> Size() const override {
    struct stat status;
    if (fstat(fd_, &status) != 0) return LastError("stat", path_);
    return status.st_size;
  }

 private:
  // Writes all of `vectors` at `*offset`, and advances `*offset` past them.
  absl::Status WriteVectors(int64_t* offset, iovec* vectors, size_t count) {
    while (count > 0) {
      ssize_t n = pwritev(fd_, vectors, static_cast<int>(count), *offset);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return LastError("write", path_);
      if (n == 0 && vectors->iov_len > 0) {
        // Without an error nothing was written. A retry could loop forever.
        return ErrnoToStatus(EIO, absl::StrCat("write ", path_));
      }
      *offset += n;
      while (count > 0 && static_cast<size_t>(n) >= vectors->iov_len) {
        n -= vectors->iov_len;
        ++vectors;
        --count;
      }
      if (count > 0) {
        vectors->iov_base = static_cast<char*>(vectors->iov_base) + n;
        vectors->iov_len -= n;
      }
    }
    return absl::OkStatus();
  }

  // Opens the same file again; works after a rename.
  bool OpenStraight() {
    std::call_once(straight_once_, [this] {
      straight_fd_ = open(absl::StrCat("/proc/self/fd/", fd_).c_str(),
                          O_WRONLY | O_DIRECT | O_CLOEXEC);
    });
    return straight_fd_ >= 0;
  }

  const int fd_;
  const std::string path_;
  const bool writable_;
  std::once_flag straight_once_;
  int straight_fd_ = -1;  // Also -1 if the file system lacks O_DIRECT.
};

class PosixLock : public FileLock {
 public:
  explicit PosixLock(int fd) : fd_(fd) {}
  ~PosixLock() override { close(fd_); }

 private:
  const int fd_;
};

class Posix : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForRead(
      const std::string& path) override {
    return Open(path, O_RDONLY);
  }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForWrite(
      const std::string& path) override {
    return Open(path, O_RDWR | O_CREAT | NoFollow(path));
  }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenPrivate(
      const std::string& path) override {
    return Open(path, O_RDWR | O_CREAT | NoFollow(path), 0600);
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (rename(from.c_str(), to.c_str()) != 0) return LastError("rename", from);
    return absl::OkStatus();
  }

  absl::Status Remove(const std::string& path) override {
    if (remove(path.c_str()) != 0) return LastError("remove", path);
    return absl::OkStatus();
  }

  absl::Status CreateDirectories(const std::string& path) override {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) {
      return ErrnoToStatus(error.value(),
                           absl::StrCat("make directory ", path));
    }
    return absl::OkStatus();
  }

  absl::Status SyncDirectory(const std::string& path) override {
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return LastError("open directory", path);
    const absl::Status status =
        fsync(fd) == 0 ? absl::OkStatus() : LastError("sync directory", path);
    close(fd);
    return status;
  }

  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override {
    DIR* const directory = opendir(path.c_str());
    if (directory == nullptr) return LastError("list", path);
    std::vector<std::string> names;
    while (const dirent* entry = readdir(directory)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    closedir(directory);
    std::sort(names.begin(), names.end());
    return names;
  }

  bool Exists(const std::string& path) override {
    return access(path.c_str(), F_OK) == 0;
  }

  absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path) override {
    const int fd = open(
        path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | NoFollow(path), 0644);
    if (fd < 0) return OpenError(path);
    auto lock = std::make_unique<PosixLock>(fd);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno == EWOULDBLOCK) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is locked by another process"));
    }
    return LastError("lock", path);
  }

 private:
  static absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(
      const std::string& path, int flags, mode_t mode = 0644) {
    const int fd = open(path.c_str(), flags | O_CLOEXEC, mode);
    if (fd < 0) return OpenError(path);
    return std::make_unique<PosixFile>(fd, path, (flags & O_RDWR) != 0);
  }
};

}  // namespace

FileSystem& PosixFileSystem() {
  static Posix* const file_system = new Posix;
  return *file_system;
}

}  // namespace atl
