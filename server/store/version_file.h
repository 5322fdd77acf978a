// A version of a shard's part of one fragment, as a file: the parameters and
// the optimizer's state. Immutable once it is sealed. server/store/DESIGN.md,
// Version file, has the format.
//
// Array 0 is theta. Arrays 1.. are the state: the optimizer's arrays, then the
// replica if the run has one. Each array is f32 with the range's elements.
//
// Arrays with an image (version_image.h) are in memory: Write and Read do not
// touch the file, and Seal writes them. Read checks the checksums of blocks
// from the file, not of blocks in memory. An image whose array is in the file
// can be given to the next version, which is then made in place.
//
// Thread-safe: Write and Read of different blocks may run concurrently. Block
// numbers count from the fragment's first block.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/io/file_system.h"
#include "base/layout/digest.h"
#include "base/layout/layout.h"
#include "base/sync/mutex.h"
#include "server/store/shard_range.h"
#include "server/store/version_image.h"

namespace atl::server {

// Identity of a version, from the header of its file.
struct VersionIdentity {
  std::string run_id;
  int32_t shard = 0;
  int64_t version = 0;
  int64_t commit_seq = 0;
  Digest128 digest;               // This shard's part.
  Digest128 replica_digest;       // The same of the replica, if there is one.
  bool replica_left_out = false;  // The replica is not in the file.
};

class VersionFile {
 public:
  // Makes an empty file at `path` and reserves all its space.
  //
  // RESOURCE_EXHAUSTED: the disk is full; no file is left.
  static absl::StatusOr<std::unique_ptr<VersionFile>> Create(
      FileSystem& fs, const std::string& path, const ShardRange& range,
      int state_count);

  // Elements of an array's image: those of the range and its padding in the
  // file.
  static int64_t ImageElementCount(const ShardRange& range);

  // Renames the file and empties it for another version of the same range,
  // without images: its pages and disk space are allocated already. Requires:
  // no other user has it. False if it cannot be reused (it is read-only, or the
  // rename failed): remove it then.
  bool Reuse(FileSystem& fs, const std::string& path);
  // Gives an array an image of ImageElementCount elements, before any write of
  // the array; null: it is in the file only. `carried`: the image contains the
  // array of the version before (TakeImage). A merge must read each element of
  // it before it writes that element.
  void SetImage(int array, VersionImage image, bool carried = false);
  bool carries(int array) const;
  // Takes an array's image away; later reads use the file. Null unless the file
  // has the array (perhaps unsynced) and no caller holds what Map returned.
  VersionImage TakeImage(int array);

  // Opens a file that Seal or WriteHeader has finished. `writable`: it can be
  // sealed again; creates a missing file, which is DATA_LOSS.
  //
  // NOT_FOUND: there is none. DATA_LOSS: it is damaged, of another format, or
  // not of this range; the message names the file. UNAVAILABLE: the disk cannot
  // read it; its content may be good.
  static absl::StatusOr<std::unique_ptr<VersionFile>> Open(
      FileSystem& fs, const std::string& path, const ShardRange& range,
      int state_count, bool writable = false);

  // The elements of `blocks` of one array in memory, valid while `keep` lives;
  // null if the array has no image. Elements must not change after Write.
  float* Map(int array, IndexRange blocks, VersionImage* keep);

  bool InMemory() const;

  // Computes the elements of blocks of an array that is not in the file.
  using ArrayMaker = std::function<absl::Status(IndexRange, float*)>;
  // Leaves the replica, the last array, out of the file, which has only its
  // checksums. If it is not in memory, Read calls `maker` and checks the
  // result. Call it before Seal, or after Open of a file without its replica.
  void LeaveOutReplica(ArrayMaker maker);
  bool replica_left_out() const;

  // Frees the memory: later reads use the file. Does nothing before Seal.
  void DropImage();

  // Writes the elements of `blocks` of one array; `elements` may be what Map
  // returned.
  //
  // RESOURCE_EXHAUSTED: the disk is full. DATA_LOSS: it cannot be written.
  absl::Status Write(int array, IndexRange blocks, const float* elements);

  // Reads the elements of `blocks` of one array.
  //
  // DATA_LOSS: a checksum does not match; the message names the file. For a
  // replica that is left out: also the errors of its maker.
  absl::Status Read(int array, IndexRange blocks, float* elements) const;

  // True if the disk has failed a read: the error of Read need not mean damage.
  bool disk_has_failed() const { return disk_has_failed_; }

  // CRC-32C of a block of an array, which Write computed or Open read.
  uint32_t BlockCrc32c(int array, int64_t block) const {
    return table_[array * range_.block_count() + block -
                  range_.blocks().begin];
  }

  // From now on Write also writes into the file, unsynced, so that the bytes
  // outlive the process. Must come before the first Write.
  void WriteThrough();

  // Writes header and table, unsynced. Requires: every block of every array was
  // written into the file (without images, or after WriteThrough).
  absl::Status WriteHeader(const VersionIdentity& identity);

  // Writes images, table and header, and syncs the file. The state is written
  // first, because the next version is made in its images. Requires: every
  // block of every array was written.
  //
  // DATA_LOSS: also if the file cannot be synced and an array has no image, so
  // that it cannot be written again.
  absl::Status Seal(const VersionIdentity& identity);

  // The identity that Seal wrote or Open found. Must not be called while Seal
  // runs.
  const VersionIdentity& identity() const { return identity_; }
  std::string path() const {
    MutexLock lock(&mutex_);
    return path_;
  }
  void set_path(std::string path) {
    MutexLock lock(&mutex_);
    path_ = std::move(path);
  }
  int64_t size_bytes() const;

 private:
  VersionFile(std::unique_ptr<RandomAccessFile> file, std::string path,
              const ShardRange& range, int state_count, bool writable);

  int64_t ArrayOffset(int array) const;
  int64_t TableOffset() const;
  float* FindImage(int array, VersionImage* keep) const;
  void NoteCrcs(int array, IndexRange blocks, const float* elements);
  absl::Status WriteImages();
  absl::Status WriteImage(int array);
  // Reads all of `out` from the file. Sets disk_has_failed_ if the disk fails.
  absl::Status ReadBytes(int64_t offset, absl::Span<char> out) const;
  // Reads from the file, or from the maker if the array is left out.
  absl::Status ReadUnchecked(int array, IndexRange blocks,
                             float* elements) const;
  absl::Status WriteToFile(int array, IndexRange blocks, const float* elements);

  const std::unique_ptr<RandomAccessFile> file_;
  mutable Mutex mutex_;
  std::string path_ ABSL_GUARDED_BY(mutex_);
  struct ArrayPlace {
    VersionImage image;
    bool carried = false;
    bool in_file = false;
  };
  std::vector<ArrayPlace> places_ ABSL_GUARDED_BY(mutex_);  // By array.
  bool replica_left_out_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<const ArrayMaker> replica_maker_ ABSL_GUARDED_BY(mutex_);
  bool sealed_ ABSL_GUARDED_BY(mutex_) = false;
  bool writes_through_ ABSL_GUARDED_BY(mutex_) = false;
  // The file has all arrays.
  bool written_back_ ABSL_GUARDED_BY(mutex_) = false;
  const ShardRange range_;
  const int state_count_;
  const bool writable_;
  mutable std::atomic<bool> disk_has_failed_{false};
  VersionIdentity identity_;
  // CRC-32C of each block: array-major, [(1 + state_count) * block_count].
  std::vector<uint32_t> table_;
};

// A version that can be read. A reader may keep `file` after the version is
// removed: the open file outlives its name.
struct HeldVersion {
  std::shared_ptr<VersionFile> file;
  int64_t commit_seq = 0;
  Digest128 digest;          // This shard's part.
  Digest128 replica_digest;  // The same of the replica, if the run has one.
};

}  // namespace atl::server
