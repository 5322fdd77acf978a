#include "base/io/own_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/io/files.h"
#include "base/io/posix_file_system.h"
#include "base/random_id/random_id.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

constexpr int64_t kPortTextBytesMax = 300;

// True for "PORT\n", "HOST:PORT\n" and an empty file.
bool IsPortText(absl::string_view text) {
  if (text.empty()) return true;
  if (!absl::ConsumeSuffix(&text, "\n")) return false;
  const size_t colon = text.rfind(':');
  const absl::string_view port =
      colon == absl::string_view::npos ? text : text.substr(colon + 1);
  for (const char c : port) {
    if (!absl::ascii_isdigit(c)) return false;
  }
  return !port.empty() && text.find('\n') == absl::string_view::npos;
}

}  // namespace

absl::StatusOr<NameUse> FindNameUse(const std::string &path) {
  struct stat status = {};
  if (lstat(path.c_str(), &status) == 0) {
    return S_ISREG(status.st_mode) ? NameUse::kFile : NameUse::kOther;
  }
  if (errno == ENOENT) return NameUse::kFree;
  return ErrnoToStatus(errno, absl::StrCat("stat ", path));
}

absl::Status CreateNewFile(const std::string &path) {
  const int fd = open(
      path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0) return ErrnoToStatus(errno, absl::StrCat("create ", path));
  close(fd);
  return absl::OkStatus();
}

absl::Status ReplaceFile(FileSystem &file_system, const std::string &path,
                         absl::string_view bytes) {
  std::string to = path;
  std::error_code error;
  if (std::filesystem::is_symlink(path, error)) {
    to = std::filesystem::weakly_canonical(path, error).string();
    if (error) {
      return ErrnoToStatus(error.value(), absl::StrCat("follow ", path));
    }
  }
  const std::string temporary = absl::StrCat(to, ".", RandomId(), ".tmp");
  absl::Status status;
  {
    ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                     file_system.OpenForWrite(temporary));
    status = file->WriteAt(0, bytes);
    if (status.ok()) status = file->Sync();
  }
  if (status.ok()) status = file_system.Rename(temporary, to);
  if (!status.ok()) {
    file_system.Remove(temporary).IgnoreError();
    return status;
  }
  return file_system.SyncDirectory(ParentDirectory(to));
}

absl::Status WritePortFile(const std::string &path, absl::string_view text) {
  FileSystem &files = PosixFileSystem();
  const absl::StatusOr<std::string> before =
      ReadFile(files, path, kPortTextBytesMax);
  if (!absl::IsNotFound(before.status()) &&
      !(before.ok() && IsPortText(*before))) {
    return absl::AlreadyExistsError(absl::StrCat(
        path, " exists and is no port file: give another path, or remove it"));
  }
  return ReplaceFile(files, path, absl::StrCat(text, "\n"));
}

}  // namespace atl
