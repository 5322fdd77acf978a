// A small value in a file of two slots. Each write replaces the older slot, so
// a torn write leaves the value before it. Thread-compatible.
//
// A slot has 4096 bytes: magic u32, length u32, CRC-32C of length, counter and
// value (u32), 0 (u32), counter u64, the value, zeros. The whole slot with the
// greater counter has the value.

#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/io/file_system.h"

namespace atl::server {

class SlotFile {
 public:
  static constexpr int64_t kSlotBytes = 4096;
  static constexpr int64_t kValueBytesMax = kSlotBytes - 24;

  // Makes or replaces the file at `path`, durably. `fs` must outlive it.
  static absl::StatusOr<std::unique_ptr<SlotFile>> Create(
      FileSystem& fs, const std::string& path, absl::string_view value);
  // Opens an existing file.
  //
  // NOT_FOUND: there is none. DATA_LOSS: neither slot is whole.
  static absl::StatusOr<std::unique_ptr<SlotFile>> Open(
      FileSystem& fs, const std::string& path);
  // Only reads the value. Errors as Open.
  static absl::StatusOr<std::string> Read(FileSystem& fs,
                                          const std::string& path);

  // As of Create or Open.
  const std::string& value() const { return value_; }
  // A slot was torn or damaged when the file was opened.
  bool had_damaged_slot() const { return had_damaged_slot_; }

  // Not durable before Sync. After an error the value before is intact.
  //
  // INVALID_ARGUMENT: `value` is too long.
  absl::Status Write(absl::string_view value);
  // After an error the next Write takes the same slot again: the other one may
  // be the only one on the disk.
  absl::Status Sync();

 private:
  SlotFile() = default;
  static absl::StatusOr<SlotFile> Load(FileSystem& fs, const std::string& path);

  std::unique_ptr<RandomAccessFile> file_;
  std::string value_;
  uint64_t counter_ = 0;
  int newest_ = 0;  // The slot with the newest value.
  bool had_damaged_slot_ = false;
};

}  // namespace atl::server
