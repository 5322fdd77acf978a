#include "worker/save/atomic_file.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/io/files.h"
#include "base/status/status_macros.h"

namespace atl::worker {
namespace {

std::string TemporaryOf(const std::string& path) {
  return absl::StrCat(path, ".tmp");
}

}  // namespace

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(
    FileSystem& file_system, const std::string& path) {
  auto file = std::unique_ptr<AtomicFile>(new AtomicFile(file_system, path));
  const std::string temporary = TemporaryOf(path);
  // What a crash left would stick out behind a shorter file.
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
  file_system_.Remove(TemporaryOf(path_)).IgnoreError();
}

absl::Status AtomicFile::Append(absl::string_view bytes) {
  RETURN_IF_ERROR(file_->WriteAt(size_bytes_, bytes));
  size_bytes_ += static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit() {
  RETURN_IF_ERROR(file_->Sync());
  RETURN_IF_ERROR(file_system_.Rename(TemporaryOf(path_), path_));
  committed_ = true;
  return file_system_.SyncDirectory(DirectoryOf(path_));
}

}  // namespace atl::worker
