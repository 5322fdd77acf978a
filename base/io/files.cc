#include "base/io/files.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

absl::Status WriteNewFile(FileSystem& file_system, const std::string& path,
                          absl::string_view bytes) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                   file_system.OpenForWrite(path));
  RETURN_IF_ERROR(file->WriteAt(0, bytes));
  return file->Sync();
}

}  // namespace

absl::StatusOr<std::string> ReadFile(FileSystem& file_system,
                                     const std::string& path,
                                     int64_t bytes_max) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file,
                   file_system.OpenForRead(path));
  ASSIGN_OR_RETURN(const int64_t size, file->Size());
  if (size > bytes_max) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, " has ", size, " bytes; at most ", bytes_max, " are read"));
  }
  std::string bytes(size, '\0');
  ASSIGN_OR_RETURN(const int64_t read, file->ReadAt(0, absl::MakeSpan(bytes)));
  bytes.resize(read);
  return bytes;
}

absl::Status WriteFileAtomically(FileSystem& file_system,
                                 const std::string& path,
                                 absl::string_view bytes) {
  const std::string temporary = path + ".tmp";
  // What an earlier crash left behind may be longer than `bytes`.
  if (file_system.Exists(temporary)) {
    RETURN_IF_ERROR(file_system.Remove(temporary));
  }
  absl::Status status = WriteNewFile(file_system, temporary, bytes);
  if (status.ok()) status = file_system.Rename(temporary, path);
  if (!status.ok()) {
    file_system.Remove(temporary).IgnoreError();
    return status;
  }
  return file_system.SyncDirectory(DirectoryOf(path));
}

std::string DirectoryOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace atl
