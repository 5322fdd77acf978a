// The delta of one version of a shard's part of one fragment: the encoded
// difference that takes an island's replica from the version before to this
// one. server/store/DESIGN.md, Delta file, has the format.
//
// Blocks lie at their offsets in EncodedLayout, counted from the range's first
// block. With an image (version_image.h) they are in memory: Write and Read do
// not touch the file, and Seal writes all of it. Read checks the checksum of
// blocks from the file, not of blocks in memory.
//
// Nothing is synced: a delta that a power loss damages counts as missing, and
// islands get the full replica instead.
//
// Thread-safe: Write and Read of different blocks may run concurrently. Block
// numbers count from the fragment's first block.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/io/file_system.h"
#include "base/layout/encoded_layout.h"
#include "base/layout/layout.h"
#include "base/sync/mutex.h"
#include "server/store/version_image.h"

namespace atl::server {

// Identity of a delta, from the header of its file.
struct DeltaIdentity {
  std::string run_id;
  int32_t shard = 0;
  int64_t version = 0;  // v: the delta leads from the replica of v - 1 to v's.
};

class DeltaFile {
 public:
  // Makes an empty file at `path` and reserves all its space. `image` is null
  // or has ImageElementCount elements. `layout` must outlive the file.
  //
  // RESOURCE_EXHAUSTED: the disk is full; no file is left.
  static absl::StatusOr<std::unique_ptr<DeltaFile>> Create(
      FileSystem& fs, const std::string& path, const EncodedLayout& layout,
      IndexRange blocks, VersionImage image);

  // Opens a sealed file.
  //
  // NOT_FOUND: there is none. DATA_LOSS: it is damaged, of another format, or
  // not of this range and codec; the message names the file.
  static absl::StatusOr<std::unique_ptr<DeltaFile>> Open(
      FileSystem& fs, const std::string& path, const EncodedLayout& layout,
      IndexRange blocks);

  // Renames the file and empties it for another version: its pages and disk
  // space are allocated already. Requires: no other user has it. False if it
  // cannot be reused (Open made it, or the rename failed): remove it then.
  bool Reuse(FileSystem& fs, const std::string& path, VersionImage image);

  // Elements (f32) of an image: the encoded blocks and their padding in the
  // file.
  static int64_t ImageElementCount(const EncodedLayout& layout,
                                   IndexRange blocks);

  // The bytes of `blocks` in memory, valid while `keep` lives; null if they are
  // in the file only.
  char* Map(IndexRange blocks, VersionImage* keep) const;

  // Writes the bytes of `blocks`; `bytes` may be what Map returned.
  //
  // RESOURCE_EXHAUSTED: the disk is full. DATA_LOSS: it cannot be written.
  absl::Status Write(IndexRange blocks, const char* bytes);

  // DATA_LOSS: a checksum does not match; the message names the file.
  absl::Status Read(IndexRange blocks, char* bytes) const;

  // CRC-32C of a block's bytes, which Write computed or Open read.
  uint32_t BlockCrc32c(int64_t block) const {
    return table_[block - blocks_.begin];
  }

  // Writes the image, the table and the header. Requires: every block was
  // written.
  absl::Status Seal(const DeltaIdentity& identity);
  // Frees the memory. Does nothing before Seal.
  void DropImage();

  const DeltaIdentity& identity() const { return identity_; }
  int64_t payload_bytes() const { return layout_.ByteCount(blocks_); }
  std::string path() const {
    MutexLock lock(&mutex_);
    return path_;
  }
  void set_path(std::string path) {
    MutexLock lock(&mutex_);
    path_ = std::move(path);
  }

 private:
  DeltaFile(std::unique_ptr<RandomAccessFile> file, std::string path,
            const EncodedLayout& layout, IndexRange blocks, bool writable);

  void SetImage(VersionImage image);
  int64_t Offset(int64_t block) const {
    return layout_.ByteOffset(block) - layout_.ByteOffset(blocks_.begin);
  }
  int64_t TableOffset() const;

  const std::unique_ptr<RandomAccessFile> file_;
  const EncodedLayout& layout_;
  const IndexRange blocks_;
  const bool writable_;
  DeltaIdentity identity_;
  std::vector<uint32_t> table_;  // A CRC-32C a block.
  mutable Mutex mutex_;
  std::string path_ ABSL_GUARDED_BY(mutex_);
  VersionImage image_ ABSL_GUARDED_BY(mutex_);
  bool sealed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace atl::server
