// A file that grows by rows or records, which one process writes at a time.
// Thread-compatible.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/io/file_system.h"

namespace atl::cli {

class CurveFile {
 public:
  // Opens or creates `path`, and locks it until the object is destroyed.
  // `file_system` outlives this.
  //
  // FAILED_PRECONDITION: another process has locked it, or `path` is a link of
  // another user. Others: as the file system's.
  static absl::StatusOr<std::unique_ptr<CurveFile>> Open(
      FileSystem& file_system, const std::string& path);

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }

  // The whole content.
  absl::StatusOr<std::string> Read() const;

  // Cuts the file to the first `size_bytes`; after an error it is unchanged.
  absl::Status Truncate(int64_t size_bytes);

  // Replaces what follows `offset`, which must not be longer than `bytes`.
  // After an error the end of the file may be torn.
  absl::Status Replace(int64_t offset, absl::string_view bytes);
  absl::Status Append(absl::string_view bytes) {
    return Replace(size_bytes_, bytes);
  }

 private:
  CurveFile(FileSystem& file_system, std::string path)
      : file_system_(file_system), path_(std::move(path)) {}

  absl::Status Open();

  FileSystem& file_system_;
  const std::string path_;
  std::unique_ptr<FileLock> lock_;
  std::unique_ptr<RandomAccessFile> file_;
  int64_t size_bytes_ = 0;
};

}  // namespace atl::cli
