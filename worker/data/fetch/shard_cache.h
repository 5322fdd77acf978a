// Data files by their SHA-256, in a directory that all islands of a user may
// share. Thread-safe; so are several caches of one directory, in any processes.
//
// Other users may write the directory (/tmp): names are looked up in it without
// following links, and what belongs to another user than this one and root is
// refused.
//
//   DIR/aa/SHA256        a whole file; aa: its first two digits
//   DIR/aa/SHA256.part   the beginning of one
//   DIR/manifests/FP     the manifest with the fingerprint FP
//
// An open file has a shared flock, and the writer of a part an exclusive one,
// so no cache removes what another uses. A file's modification time is its last
// use. Bytes are checked whenever a file is opened: nothing here is trusted.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/codec/sha256.h"
#include "base/io/file_system.h"
#include "base/io/open_directory.h"
#include "base/io/unique_fd.h"
#include "worker/data/data_file_reader.h"
#include "worker/data/manifest.h"

namespace atl::worker {

// A file of the cache that is being written. Thread-compatible. Without a
// Commit the bytes stay for a later writer.
class PartFile {
 public:
  // Bytes that are here.
  int64_t size_bytes() const { return size_bytes_; }

  // RESOURCE_EXHAUSTED: the disk is full; a later call may succeed. Others: the
  // disk's.
  absl::Status Append(absl::string_view bytes);

  // Forgets all bytes.
  absl::Status Restart();

  // DATA_LOSS: the bytes are not the file's, and are forgotten.
  absl::Status Check();

  // Gives the file its name. Requires: Check succeeded, after the last Append.
  // After an error only destruction is right.
  absl::StatusOr<std::shared_ptr<const DataFileReader>> Commit();

 private:
  friend class ShardCache;
  PartFile(FileSystem& files, ManifestFile file,
           std::unique_ptr<OpenDirectory> directory)
      : files_(files),
        file_(std::move(file)),
        directory_(std::move(directory)) {}

  std::string path() const { return directory_->PathOf(file_.sha256); }
  std::string part_name() const;
  std::string part_path() const { return directory_->PathOf(part_name()); }
  // True if the part has its name and the lock. UNAVAILABLE: another holds it.
  absl::StatusOr<bool> TryLock();
  absl::Status HashRest();

  FileSystem& files_;
  const ManifestFile file_;
  const std::unique_ptr<OpenDirectory> directory_;  // DIR/aa.
  UniqueFd locked_;  // Reads, and holds the lock.
  std::unique_ptr<RandomAccessFile> out_;
  std::optional<codec::Sha256> sha_;  // SHA-256 state after size_bytes_ bytes.
  int64_t size_bytes_ = 0;
};

class ShardCache {
 public:
  // `files` must outlive the cache and be, or forward to, the machine's file
  // system. `bytes_max` bounds all files and parts together, but not those that
  // are open. Errors: the directory cannot be made.
  static absl::StatusOr<std::unique_ptr<ShardCache>> Open(std::string directory,
                                                          int64_t bytes_max,
                                                          FileSystem& files);

  const std::string& directory() const { return directory_; }
  int64_t bytes_max() const { return bytes_max_; }

  // Opens a whole file; it stays until the reader is destroyed. Null: it is not
  // here, or had other bytes and was removed. FAILED_PRECONDITION: something in
  // the directory is a link or another user's. Others: the system's.
  absl::StatusOr<std::shared_ptr<const DataFileReader>> Find(
      const ManifestFile& file);

  // Begins or continues to write a file.
  //
  // ALREADY_EXISTS: it is here whole. UNAVAILABLE: another writer has it.
  // FAILED_PRECONDITION: as Find.
  absl::StatusOr<std::unique_ptr<PartFile>> Write(const ManifestFile& file);

  // The bytes of a file that are here as a part, of any writer.
  int64_t GetPartBytes(const ManifestFile& file) const;

  // Removes the least recently used files until `bytes` more fit in bytes_max.
  // False: files in use take too much.
  bool MakeRoom(int64_t bytes);

  // Removes the least recently used files, of at least `bytes` together.
  // Returns the bytes removed.
  int64_t Evict(int64_t bytes);

  // The text of the manifest with this fingerprint. NOT_FOUND: it is not here.
  absl::StatusOr<std::string> ReadManifestText(const std::string& fingerprint);
  absl::Status WriteManifestText(const std::string& fingerprint,
                                 absl::string_view text);

 private:
  ShardCache(std::string directory, std::unique_ptr<OpenDirectory> opened,
             int64_t bytes_max, FileSystem& files)
      : directory_(std::move(directory)),
        opened_(std::move(opened)),
        bytes_max_(bytes_max),
        files_(files) {}

  const std::string directory_;
  const std::unique_ptr<OpenDirectory> opened_;
  const int64_t bytes_max_;
  FileSystem& files_;
};

}  // namespace atl::worker
