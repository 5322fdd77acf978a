#include "cli/ca/ca_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/io/new_file.h"
#include "base/io/posix_file_system.h"
#include "base/random_id/random_id.h"
#include "base/status/annotate.h"
#include "base/status/status_macros.h"

namespace atl::cli {
namespace {

constexpr int64_t kFileBytesMax = 1 << 20;

}  // namespace

std::string FileIn(const std::string& directory, absl::string_view name) {
  return absl::StrCat(directory, "/", name);
}

bool HoldsFile(const std::string& directory, absl::string_view name) {
  return PosixFileSystem().Exists(FileIn(directory, name));
}

absl::StatusOr<std::string> ReadFileIn(const std::string& directory,
                                       absl::string_view name) {
  return ReadFile(PosixFileSystem(), FileIn(directory, name), kFileBytesMax);
}

absl::Status WriteFileIn(const std::string& directory, absl::string_view name,
                         absl::string_view text) {
  const std::string path = FileIn(directory, name);
  const std::string temporary = absl::StrCat(path, ".", RandomId(), ".tmp");
  const bool is_secret =
      absl::EndsWith(name, ".key") || absl::EndsWith(name, ".token") ||
      absl::EndsWith(name, ".service") ||  // A proxy's password may be in it.
      absl::EndsWith(name, ".consent");
  const mode_t mode = is_secret ? 0600 : 0644;
  RETURN_IF_ERROR(WriteNewFile(temporary, text, mode));
  FileSystem& fs = PosixFileSystem();
  const absl::Status status = fs.Rename(temporary, path);
  if (status.ok()) return fs.SyncDirectory(directory);
  ::unlink(temporary.c_str());
  return status;
}

absl::Status AppendToFileIn(const std::string& directory,
                            absl::string_view name, absl::string_view text) {
  const std::string path = FileIn(directory, name);
  const int fd = ::open(path.c_str(),
                        O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC,
                        0644);
  if (fd < 0) return ErrnoToStatus(errno, path);
  const absl::Status status = Annotate(WriteAll(fd, text), path);
  ::close(fd);
  RETURN_IF_ERROR(status);
  return PosixFileSystem().SyncDirectory(directory);
}

}  // namespace atl::cli
