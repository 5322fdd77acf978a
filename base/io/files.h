// Whole files over a FileSystem. As thread-safe as the FileSystem.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/io/file_system.h"

namespace atl {

// Reads a whole file.
// RESOURCE_EXHAUSTED: it has more than `bytes_max` bytes. Otherwise as
// OpenForRead.
absl::StatusOr<std::string> ReadFile(FileSystem& file_system,
                                     const std::string& path,
                                     int64_t bytes_max = int64_t{1} << 30);

// A file written in pieces that appears whole or not at all. Thread-compatible.
//
// The bytes go to PATH.tmp. Commit syncs it, renames it to PATH and syncs the
// directory. Without a Commit the destructor removes PATH.tmp, and PATH keeps
// its old content.
class AtomicFile {
 public:
  // `file_system` must outlive the file. Errors as the file system's.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(
      FileSystem& file_system, const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  absl::Status Append(absl::string_view bytes);
  // Puts the file in place. Durable on return.
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

// Replaces the content of `path` by `bytes`, with an AtomicFile. After a crash
// at any time the file is the whole old one or the whole new one. Durable on
// return. After an error the old file is intact, and PATH.tmp is removed if
// possible.
absl::Status WriteFileAtomically(FileSystem& file_system,
                                 const std::string& path,
                                 absl::string_view bytes);

// The directory of `path`; "." if `path` has no directory.
std::string ParentDirectory(const std::string& path);

// `path` from the root on, without "." and "..": if it has "..", links of its
// existing part are followed. Unchanged if it is empty, or if this process has
// no working directory; with its ".." if a directory of it cannot be read.
std::string AbsolutePath(const std::string& path);

}  // namespace atl
