#include "cli/curves/curve_file.h"

#include "base/io/files.h"
#include "base/io/own_file.h"
#include "base/io/private_directory.h"
#include "base/status/status_macros.h"

namespace atl::cli {

absl::StatusOr<std::unique_ptr<CurveFile>> CurveFile::Open(
    FileSystem& file_system, const std::string& path) {
  ASSIGN_OR_RETURN(std::string to, FollowTrustedLinks(path));
  std::unique_ptr<CurveFile> file(new CurveFile(file_system, std::move(to)));
  RETURN_IF_ERROR(file->Open());
  return file;
}

absl::Status CurveFile::Open() {
  ASSIGN_OR_RETURN(lock_, file_system_.Lock(path_));
  ASSIGN_OR_RETURN(file_, file_system_.OpenForWrite(path_));
  ASSIGN_OR_RETURN(size_bytes_, file_->Size());
  return absl::OkStatus();
}

absl::StatusOr<std::string> CurveFile::Read() const {
  return ReadFile(file_system_, path_);
}

absl::Status CurveFile::Truncate(int64_t size_bytes) {
  ASSIGN_OR_RETURN(std::string bytes, Read());
  bytes.resize(static_cast<size_t>(size_bytes));
  RETURN_IF_ERROR(ReplaceFile(file_system_, path_, bytes));
  return Open();  // The path names another file now.
}

absl::Status CurveFile::Replace(int64_t offset, absl::string_view bytes) {
  RETURN_IF_ERROR(file_->WriteAt(offset, bytes));
  size_bytes_ = offset + static_cast<int64_t>(bytes.size());
  return absl::OkStatus();
}

}  // namespace atl::cli
