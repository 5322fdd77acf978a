// The file that names the owner of a data directory: DATA_DIR/identity.
// Thread-compatible.

#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/io/file_system.h"
#include "server/store/records/server_records.pb.h"
#include "server/store/records/slot_file.h"

namespace atl::server {

class IdentityFile {
 public:
  static constexpr int kFormatNumber = 3;

  // Makes the file, durably. `fs` must outlive it. Sets the format number.
  static absl::StatusOr<std::unique_ptr<IdentityFile>> Create(
      FileSystem& fs, const std::string& path, records::Identity identity);
  // NOT_FOUND: it does not exist. DATA_LOSS: it is damaged, or another format.
  static absl::StatusOr<std::unique_ptr<IdentityFile>> Open(
      FileSystem& fs, const std::string& path);

  const records::Identity& identity() const { return identity_; }
  // A write was torn before the file was opened; identity() is what it had
  // before.
  bool had_damaged_slot() const { return file_->had_damaged_slot(); }

  // Replaces the identity, durably, and sets the format number. After an error
  // the old one is intact.
  absl::Status Write(records::Identity identity);

 private:
  IdentityFile(std::unique_ptr<SlotFile> file, records::Identity identity)
      : file_(std::move(file)), identity_(std::move(identity)) {}

  const std::unique_ptr<SlotFile> file_;
  records::Identity identity_;
};

}  // namespace atl::server
