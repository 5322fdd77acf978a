// Tells how long each sync of another file system takes. As thread-safe as the
// other one.

#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/io/file_system.h"
#include "base/time/clock.h"

namespace atl {

class TimedFileSystem : public FileSystem {
 public:
  // Called from any thread, after each RandomAccessFile::Sync and SyncDirectory
  // whether it succeeded or not.
  using OnSync = std::function<void(absl::Duration)>;

  // `files` and `clock` must outlive this and the files that it opens.
  TimedFileSystem(FileSystem& files, const Clock& clock, OnSync on_sync)
      : files_(files), clock_(clock), on_sync_(std::move(on_sync)) {}

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForRead(
      const std::string& path) override {
    return files_.OpenForRead(path);
  }
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForWrite(
      const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return files_.Rename(from, to);
  }
  absl::Status Remove(const std::string& path) override {
    return files_.Remove(path);
  }
  absl::Status CreateDirectories(const std::string& path) override {
    return files_.CreateDirectories(path);
  }
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override {
    return files_.List(path);
  }
  bool Exists(const std::string& path) override { return files_.Exists(path); }
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path) override {
    return files_.Lock(path);
  }

 private:
  FileSystem& files_;
  const Clock& clock_;
  const OnSync on_sync_;
};

}  // namespace atl
