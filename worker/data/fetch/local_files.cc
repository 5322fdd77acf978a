#include "worker/data/fetch/local_files.h"

#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/object_store/object_url.h"
#include "base/status/status_macros.h"

namespace atl::worker {

absl::StatusOr<std::shared_ptr<const DataFileReader>> LocalFiles::Open(
    int32_t index) {
  const ManifestFile& file = files_[index];
  const std::string path = JoinObjectName(directory_, file.path);
  ASSIGN_OR_RETURN(DataFileReader opened, DataFileReader::Open(path));
  const auto reader = std::make_shared<const DataFileReader>(std::move(opened));
  {
    MutexLock lock(&mutex_);
    if (is_checked_[index]) return reader;
  }
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  std::string sha256;
  if (!error && static_cast<int64_t>(size) == file.size_bytes) {
    ASSIGN_OR_RETURN(sha256, reader->ComputeSha256(file.size_bytes));
  }
  if (sha256 != file.sha256) {
    return absl::DataLossError(
        absl::StrCat("data file ", path,
                     " is not the one that was published: its size or "
                     "its SHA-256 differs; copy it again"));
  }
  MutexLock lock(&mutex_);
  is_checked_[index] = true;
  return reader;
}

}  // namespace atl::worker
