// The disk seam: what writes files takes a FileSystem, so that a test can make
// the disk full, broken, or forgetful of what was not synced.
//
// Errors of every call, unless it says more: NOT_FOUND, ALREADY_EXISTS,
// PERMISSION_DENIED as the system has them; RESOURCE_EXHAUSTED: the disk is
// full; DATA_LOSS: the disk cannot be read or written (EIO); UNKNOWN: the
// rest. Messages name the path.

#ifndef BASE_IO_FILE_SYSTEM_H_
#define BASE_IO_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace atl {

// An open file. Thread-safe for calls on ranges that do not overlap.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;

  // Reads up to out.size() bytes at `offset`; returns how many there were:
  // fewer only at the file's end.
  virtual absl::StatusOr<int64_t> ReadAt(int64_t offset,
                                         absl::Span<char> out) const = 0;

  // Writes all of `pieces`, one after the other, at `offset`. After an error
  // the range's content is undefined.
  virtual absl::Status WriteAt(int64_t offset,
                               absl::Span<const absl::string_view> pieces) = 0;
  absl::Status WriteAt(int64_t offset, absl::string_view bytes) {
    return WriteAt(offset, absl::MakeConstSpan(&bytes, 1));
  }

  // What WriteStraightAt wants offsets, sizes and addresses to be multiples of.
  static constexpr int64_t kStraightBytes = 4096;

  // As WriteAt, past the system's cache of pages if it can be: for what is
  // written once, much at a time, and not read soon. What does not begin, end
  // and lie at multiples of kStraightBytes is written as WriteAt does.
  virtual absl::Status WriteStraightAt(int64_t offset,
                                       absl::string_view bytes) {
    return WriteAt(offset, bytes);
  }

  // Makes all that was written durable (fdatasync). What was written before a
  // Sync that failed is in doubt for good: a later one that succeeds says
  // nothing of it, for the system takes it for written.
  virtual absl::Status Sync() = 0;

  // Reserves disk space for the first `size` bytes, and makes the file at
  // least that long.
  virtual absl::Status Preallocate(int64_t size) = 0;

  virtual absl::StatusOr<int64_t> Size() const = 0;
};

// Thread-safe.
class FileSystem {
 public:
  virtual ~FileSystem() = default;

  // Opens a file that exists; it cannot be written. The file stays readable
  // when it is removed or replaced later.
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForRead(
      const std::string& path) = 0;
  // Opens a file for reading and writing, and makes it, empty, if there is
  // none.
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForWrite(
      const std::string& path) = 0;

  // Replaces `to` if it is there. Durable after SyncDirectory of both parents.
  virtual absl::Status Rename(const std::string& from,
                              const std::string& to) = 0;
  // A second name for a file.
  virtual absl::Status Link(const std::string& from, const std::string& to) = 0;
  // Removes a file or an empty directory.
  virtual absl::Status Remove(const std::string& path) = 0;
  // Makes a directory and its parents; OK if it is there.
  virtual absl::Status CreateDirectories(const std::string& path) = 0;
  // Makes the names in a directory durable.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  // Names in a directory, sorted, without "." and "..".
  virtual absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) = 0;
  // True for a file or a directory.
  virtual bool Exists(const std::string& path) = 0;
  // Bytes that can still be written to the disk that holds `path`.
  virtual absl::StatusOr<int64_t> FreeBytes(const std::string& path) = 0;
};

}  // namespace atl

#endif  // BASE_IO_FILE_SYSTEM_H_
