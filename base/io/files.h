// Whole files over a FileSystem. Thread-safe as it is.

#ifndef BASE_IO_FILES_H_
#define BASE_IO_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/io/file_system.h"

namespace atl {

// The bytes of a file.
//
// RESOURCE_EXHAUSTED: it has more than `bytes_max`. Else as OpenForRead.
absl::StatusOr<std::string> ReadFile(FileSystem& file_system,
                                     const std::string& path,
                                     int64_t bytes_max = int64_t{1} << 30);

// A file that appears whole or not at all, written piece by piece.
//
// The bytes go to PATH.tmp; Commit syncs it, renames it to PATH and syncs the
// directory. Without a Commit the old file stands and PATH.tmp is removed.
// Thread-compatible.
class AtomicFile {
 public:
  // Errors as the file system's. `file_system` must outlive the file.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(
      FileSystem& file_system, const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends `bytes`.
  absl::Status Append(absl::string_view bytes);
  // Puts the file in place, durable on return.
  absl::Status Commit();

  int64_t size_bytes() const { return size_bytes_; }

 private:
  AtomicFile(FileSystem& file_system, std::string path)
      : file_system_(file_system), path_(std::move(path)) {}

  FileSystem& file_system_;
  const std::string path_;
  std::unique_ptr<RandomAccessFile> file_;
  int64_t size_bytes_ = 0;
  bool committed_ = false;
};

// Replaces `path` by `bytes`: after a crash at any time the file is the old one
// or the new one, whole. Durable on return. By an AtomicFile: after an error
// the old file stands, and PATH.tmp is gone where it could be removed.
absl::Status WriteFileAtomically(FileSystem& file_system,
                                 const std::string& path,
                                 absl::string_view bytes);

// The directory that holds `path`; "." if it names none.
std::string ParentDirectory(const std::string& path);

}  // namespace atl

#endif  // BASE_IO_FILES_H_
