// The disk seam. Programs write files through a FileSystem. So a test can
// simulate a full disk, a broken disk, or the loss of bytes that were not
// synced.
//
// Errors of every call, unless stated otherwise: NOT_FOUND, ALREADY_EXISTS and
// PERMISSION_DENIED as from the system; RESOURCE_EXHAUSTED: the disk is full;
// DATA_LOSS: the disk cannot be read or written (EIO); UNAVAILABLE: no
// descriptor or no memory is left; UNKNOWN: any other error. Messages name the
// path.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace atl {

// An open file. Thread-safe for calls on disjoint ranges.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;

  // Reads up to out.size() bytes at `offset`. Returns the number of bytes read,
  // which is smaller only at the end of the file.
  virtual absl::StatusOr<int64_t> ReadAt(int64_t offset,
                                         absl::Span<char> out) const = 0;

  // Writes all of `pieces`, back to back, at `offset`. After an error the
  // range's content is undefined.
  virtual absl::Status WriteAt(int64_t offset,
                               absl::Span<const absl::string_view> pieces) = 0;
  absl::Status WriteAt(int64_t offset, absl::string_view bytes) {
    return WriteAt(offset, absl::MakeConstSpan(&bytes, 1));
  }

  // The alignment of offset, size and address for WriteStraightAt.
  static constexpr int64_t kStraightBytes = 4096;

  // As WriteAt, but bypasses the page cache where possible: for large writes
  // that are not read soon. Falls back to WriteAt unless offset, size and
  // address are multiples of kStraightBytes.
  virtual absl::Status WriteStraightAt(int64_t offset,
                                       absl::string_view bytes) {
    return WriteAt(offset, bytes);
  }

  // Makes all written bytes durable (fdatasync). Bytes written before a Sync
  // that failed may be lost even if a later Sync succeeds: the system marks
  // them as written.
  virtual absl::Status Sync() = 0;

  // Reserves disk space for the first `size` bytes, and extends the file to at
  // least that length.
  virtual absl::Status Preallocate(int64_t size) = 0;

  virtual absl::StatusOr<int64_t> Size() const = 0;
};

// Holds a lock until it is destroyed.
class FileLock {
 public:
  virtual ~FileLock() = default;
};

// Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Opens an existing file for reading only. The open file stays readable after
  // the path is removed or replaced.
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForRead(
      const std::string& path) = 0;
  // Opens a file for reading and writing; creates it, empty, if it does not
  // exist. FAILED_PRECONDITION: it is a link, which is not followed.
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForWrite(
      const std::string& path) = 0;

  // Replaces `to` if it exists. Durable after SyncDirectory of both parents.
  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;
  // Removes a file or an empty directory.
  virtual absl::Status Remove(const std::string& path) = 0;
  // Makes a directory and its parents; OK if it exists.
  virtual absl::Status CreateDirectories(const std::string& path) = 0;
  // Makes the names in a directory durable.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // Names in a directory, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) = 0;
  // True for a file or a directory.
  virtual bool Exists(const std::string& path) = 0;

  // Locks a file, and creates it if it does not exist. The end of the process
  // unlocks it too. A file system that only one process sees locks nothing.
  //
  // FAILED_PRECONDITION: another holder has locked it, or it is a link.
  virtual absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path) {
    return std::make_unique<FileLock>();
  }

  // OpenForWrite, but a new file has mode 0600 if the file system has modes.
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenPrivate(
      const std::string& path) {
    return OpenForWrite(path);
  }
};

}  // namespace atl
