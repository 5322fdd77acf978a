// Tells how long each sync of another file system takes. As thread-safe as the
// other one.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/io/file_system.h"
#include "base/io/forwarding_file_system.h"
#include "base/time/clock.h"

namespace atl {

class TimedFileSystem : public ForwardingFileSystem {
 public:
  // Called from any thread, after each RandomAccessFile::Sync and SyncDirectory
  // whether it succeeded or not.
  using OnSync = std::function<void(absl::Duration)>;

  // `files` and `clock` must outlive this and the files that it opens.
  TimedFileSystem(FileSystem& files, const Clock& clock, OnSync on_sync)
      : ForwardingFileSystem(files),
        clock_(clock),
        on_sync_(std::move(on_sync)) {}

  absl::Status SyncDirectory(const std::string& path) override;

 protected:
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenWritable(
      const std::string& path, bool is_private) override;

 private:
  const Clock& clock_;
  const OnSync on_sync_;
};

}  // namespace atl
