// The high-water mark of the log: the number of synced batches, kept outside
// the database. A database with fewer batches has lost synced ones.
// Thread-compatible.
//
// The file has two slots of 512 bytes, at offsets 0 and 4096. A slot is
// "atollmrk", the number (8 bytes, little-endian), zeros, and in its last 4
// bytes the CRC-32C of the bytes before them, little-endian. The slot with the
// greater number holds. Writes alternate between the slots, so a power cut
// damages at most the slot that does not hold.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/io/file_system.h"

namespace atl::coordinator {

class LogMark {
 public:
  // Reads the mark in the file `path`, which need not exist. Changes nothing.
  // `files` must outlive the mark. Errors as FileSystem::OpenForWrite; a slot
  // that cannot be read counts as damaged.
  static absl::StatusOr<std::unique_ptr<LogMark>> Read(FileSystem& files,
                                                       std::string path);

  // Makes `index` the mark, durable on return. Makes the file if needed.
  // Requires: greater than index(). After an error the old mark holds, or the
  // new one if its bytes reached the disk. Errors as RandomAccessFile.
  absl::Status Write(int64_t index);

  // nullopt: the file does not exist, or no slot is readable.
  std::optional<int64_t> index() const { return index_; }
  const std::string& path() const { return path_; }

 private:
  LogMark(FileSystem& files, std::string path);

  absl::Status Create();

  FileSystem& files_;
  const std::string path_;
  std::unique_ptr<RandomAccessFile> file_;
  std::optional<int64_t> index_;
  int next_slot_ = 0;  // The slot that does not hold.
};

}  // namespace atl::coordinator
