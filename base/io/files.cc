#include "base/io/files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "base/status/status_macros.h"

namespace atl {
namespace {

std::string MakeTemporaryName(const std::string& path) { return path + ".tmp"; }

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

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(
    FileSystem& file_system, const std::string& path) {
  auto file = std::unique_ptr<AtomicFile>(new AtomicFile(file_system, path));
  const std::string temporary = MakeTemporaryName(path);
  // A longer file left by a crash would keep its old end.
  if (file_system.Exists(temporary)) {
    RETURN_IF_ERROR(file_system.Remove(temporary));
  }
  ASSIGN_OR_RETURN(file->file_, file_system.OpenForWrite(temporary));
  return file;
}

AtomicFile::~AtomicFile() {
  if (committed_ || file_ == nullptr) return;
  file_.reset();
  // Best effort: the next Create removes it too.
  file_system_.Remove(MakeTemporaryName(path_)).IgnoreError();
}

absl::Status AtomicFile::Append(absl::string_view bytes) {
  RETURN_IF_ERROR(file_->WriteAt(size_bytes_, bytes));
  size_bytes_ += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  RETURN_IF_ERROR(file_->Sync());
  RETURN_IF_ERROR(file_system_.Rename(MakeTemporaryName(path_), path_));
  committed_ = true;
  return file_system_.SyncDirectory(ParentDirectory(path_));
}

absl::Status WriteFileAtomically(FileSystem& file_system,
                                 const std::string& path,
                                 absl::string_view bytes) {
  ASSIGN_OR_RETURN(const std::unique_ptr<AtomicFile> file,
                   AtomicFile::Create(file_system, path));
  RETURN_IF_ERROR(file->Append(bytes));
  return file->Commit();
}

std::string ParentDirectory(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  if (error) return path;
  if (std::find(absolute.begin(), absolute.end(), "..") == absolute.end()) {
    return absolute.lexically_normal().string();
  }
  // The parent of a link is that of its target.
  const std::filesystem::path resolved =
      std::filesystem::weakly_canonical(absolute, error);
  return error ? absolute.string() : resolved.string();
}

}  // namespace atl
