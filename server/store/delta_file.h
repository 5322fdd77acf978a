// D of one version of a shard's part of one fragment: what takes islands from
// the view before to this version's. DESIGN.md, "Delta file", has the format.
//
// Blocks lie at their offsets of EncodedLayout, counted from the range's first.
// With an image (version_image.h) they are in memory: Write and Read do not
// touch the file, and Seal writes all of it. What comes from the file is
// checked, block by block; what is in memory is not checked again.
//
// Nothing is synced: a delta that a power cut damages is one that is not held,
// and V in full takes its place.
//
// Thread-safe: Write and Read of different blocks may run at the same time.
// Blocks are named by their number in the fragment.

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

// What a delta file says that it is.
struct DeltaIdentity {
  std::string run_id;
  int32_t shard = 0;
  int64_t version = 0;  // v of D_v.
};

class DeltaFile {
 public:
  // Makes an empty file at `path`, with all its space reserved. `image` is
  // null, or has ImageElementCount elements. `layout` must outlive it.
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

  // Takes a file that nobody else has any more, and that Create made, for
  // another version, under another name: its pages and its space are there
  // already. False if it cannot be taken; then it is to be removed.
  bool Reuse(FileSystem& fs, const std::string& path, VersionImage image);

  // Elements (f32) of an image that holds the blocks, and what pads them in the
  // file.
  static int64_t ImageElementCount(const EncodedLayout& layout,
                                   IndexRange blocks);

  // Where the bytes of `blocks` lie in memory, and what keeps them there; null
  // if they are in the file alone.
  char* Map(IndexRange blocks, VersionImage* keep) const;

  // Writes the bytes of `blocks`, which may lie where Map said.
  //
  // RESOURCE_EXHAUSTED: the disk is full. DATA_LOSS: it cannot be written.
  absl::Status Write(IndexRange blocks, const char* bytes);

  // Reads the bytes of `blocks`.
  //
  // DATA_LOSS: a checksum does not match; the message names the file.
  absl::Status Read(IndexRange blocks, char* bytes) const;

  // CRC-32C of a block's bytes, as Write computed it or Open read it.
  uint32_t BlockCrc32c(int64_t block) const {
    return table_[block - blocks_.begin];
  }

  // Writes what is not in the file yet. Requires: every block was written.
  absl::Status Seal(const DeltaIdentity& identity);
  // Lets go of the memory, if the file has it all.
  void DropImage();

  const DeltaIdentity& identity() const { return identity_; }
  int64_t payload_bytes() const { return layout_.ByteCount(blocks_); }
  std::string path() const {
    MutexLock lock(&mutex_);
    return path_;
  }
  // After the file was renamed.
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
