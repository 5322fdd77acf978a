// Forwards every call to another file system. A file system that changes a call
// or two derives from it and overrides those. As thread-safe as the other one.

#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/io/file_system.h"

namespace atl {

class ForwardingFileSystem : public FileSystem {
 public:
  // `files` must outlive this.
  explicit ForwardingFileSystem(FileSystem& files) : files_(files) {}

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForRead(
      const std::string& path) override {
    return files_.OpenForRead(path);
  }
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForWrite(
      const std::string& path) final {
    return OpenWritable(path, /*is_private=*/false);
  }
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenPrivate(
      const std::string& path) final {
    return OpenWritable(path, /*is_private=*/true);
  }
  absl::Status Rename(const std::string& from, const std::string& to) override {
    return files_.Rename(from, to);
  }
  absl::Status Remove(const std::string& path) override {
    return files_.Remove(path);
  }
  absl::Status CreateDirectories(const std::string& path) override {
    return files_.CreateDirectories(path);
  }
  absl::Status SyncDirectory(const std::string& path) override {
    return files_.SyncDirectory(path);
  }
  absl::StatusOr<std::vector<std::string>> List(
      const std::string& path) override {
    return files_.List(path);
  }
  bool Exists(const std::string& path) override { return files_.Exists(path); }
  absl::StatusOr<std::unique_ptr<FileLock>> Lock(
      const std::string& path) override {
    return files_.Lock(path);
  }

 protected:
  // OpenPrivate or OpenForWrite.
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenWritable(
      const std::string& path, bool is_private) {
    return is_private ? files_.OpenPrivate(path) : files_.OpenForWrite(path);
  }

 private:
  FileSystem& files_;
};

}  // namespace atl
