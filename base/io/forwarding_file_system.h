// Forwards every call to another file system. A file system that changes a call
// or two derives from it and overrides those. ForwardingFile is the same for an
// open file. As thread-safe as the other one.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
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
  // OpenForWrite and OpenPrivate call this.
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenWritable(
      const std::string& path, bool is_private) {
    return is_private ? files_.OpenPrivate(path) : files_.OpenForWrite(path);
  }

 private:
  FileSystem& files_;
};

// WriteStraightAt calls WriteAt, so that one override sees all writes. A
// wrapper that lets straight writes through calls WriteStraightAt of file().
class ForwardingFile : public RandomAccessFile {
 public:
  explicit ForwardingFile(std::unique_ptr<RandomAccessFile> file)
      : file_(std::move(file)) {}

  absl::StatusOr<int64_t> ReadAt(int64_t offset,
                                 absl::Span<char> out) const override {
    return file_->ReadAt(offset, out);
  }
  absl::Status WriteAt(int64_t offset,
                       absl::Span<const absl::string_view> pieces) override {
    return file_->WriteAt(offset, pieces);
  }
  absl::Status Sync() override { return file_->Sync(); }
  absl::Status Preallocate(int64_t size) override {
    return file_->Preallocate(size);
  }
  absl::StatusOr<int64_t> Size() const override { return file_->Size(); }

 protected:
  RandomAccessFile& file() { return *file_; }

 private:
  const std::unique_ptr<RandomAccessFile> file_;
};

}  // namespace atl
