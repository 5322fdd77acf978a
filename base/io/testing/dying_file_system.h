// Calls fail from the N-th change of a file's name on, as if the process had
// died. Thread-compatible.

#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/io/forwarding_file_system.h"

namespace atl {

class DyingFileSystem : public ForwardingFileSystem {
 public:
  // `files` must outlive this.
  DyingFileSystem(FileSystem& files, int change_count)
      : ForwardingFileSystem(files), left_(change_count) {}

  bool is_dead() const { return left_ < 0; }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenWritable(
      const std::string& path, bool is_private) override {
    const absl::Status alive = Step();
    if (!alive.ok()) return alive;
    return ForwardingFileSystem::OpenWritable(path, is_private);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    const absl::Status alive = Step();
    return alive.ok() ? ForwardingFileSystem::Rename(from, to) : alive;
  }
  absl::Status Remove(const std::string& path) override {
    const absl::Status alive = Step();
    return alive.ok() ? ForwardingFileSystem::Remove(path) : alive;
  }
  absl::Status SyncDirectory(const std::string& path) override {
    const absl::Status alive = Step();
    return alive.ok() ? ForwardingFileSystem::SyncDirectory(path) : alive;
  }

 protected:
  // Counts a change; UNAVAILABLE after the last one.
  absl::Status Step() {
    if (left_ >= 0) --left_;
    return left_ >= 0 ? absl::OkStatus() : absl::UnavailableError("dead");
  }

 private:
  int left_;
};

}  // namespace atl
