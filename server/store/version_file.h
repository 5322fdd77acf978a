// A version of a shard's part of one fragment, as a file: the parameters and
// the optimizer's state. Immutable once it is sealed. DESIGN.md, "Version
// file", has the format.
//
// Array 0 is theta, arrays 1.. are the state: the optimizer's and, in a run
// with a view, V as the last one. Each has the range's elements.
//
// Arrays with an image (version_image.h) are in memory: for these Write and
// Read do not touch the file, and Seal writes them. What is in memory is not
// checked again; what comes from the file always is. An image whose array is in
// the file can be given to the next version, which is then made in its place.
//
// Thread-safe: Write and Read of different blocks may run at the same time.
// Blocks are named by their number in the fragment.

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

// What a version file says that it is.
struct VersionIdentity {
  std::string run_id;
  int32_t shard = 0;
  int64_t version = 0;
  int64_t commit_seq = 0;
  Digest128 digest;       // This shard's part.
  Digest128 replica_digest;       // The same of V, in a run with a view.
  bool replica_left_out = false;  // V is not in the file.
};

class VersionFile {
 public:
  // Makes an empty file at `path`, with all its space reserved.
  //
  // RESOURCE_EXHAUSTED: the disk is full; no file is left.
  static absl::StatusOr<std::unique_ptr<VersionFile>> Create(
      FileSystem& fs, const std::string& path, const ShardRange& range,
      int state_count);

  // Elements of an image of an array: as many as the file has room for.
  static int64_t ImageElementCount(const ShardRange& range);

  // Takes a file that nobody else has any more for another version of the same
  // range, under another name: its pages and its space are there already. False
  // if it cannot be taken; then it is to be removed. It has no image then.
  bool Reuse(FileSystem& fs, const std::string& path);
  // Gives an image of ImageElementCount elements to an array, before anything
  // of it is written; null: it is in the file alone. `carried`: the image has
  // the array of the version that this one is made from (TakeImage), of which
  // every element is read before it is written.
  void SetImage(int array, VersionImage image, bool carried = false);
  bool carries(int array) const;
  // Gives an array's image away, if the file has the array, perhaps unsynced,
  // and nobody else has what Map said; else null. From then on the array is
  // read from the file.
  VersionImage TakeImage(int array);

  // Opens a file that Seal or WriteHeader has finished; `writable`: to be
  // sealed again.
  //
  // NOT_FOUND: there is none. DATA_LOSS: it is damaged, of another format, or
  // not of this range; the message names the file. UNAVAILABLE: the disk does
  // not give it, which says nothing of what is in it.
  static absl::StatusOr<std::unique_ptr<VersionFile>> Open(
      FileSystem& fs, const std::string& path, const ShardRange& range,
      int state_count, bool writable = false);

  // Where blocks of one array lie in memory; null if no image has it. `keep`
  // holds the bytes there, whatever becomes of the file. What Write has taken
  // must not be changed any more.
  float* Map(int array, IndexRange blocks, VersionImage* keep);

  // True if all arrays have images.
  bool InMemory() const;

  // Makes elements of blocks of an array that the file does without.
  using ArrayMaker = std::function<absl::Status(IndexRange, float*)>;
  // The last array, V, is not written into the file, which has its checksums
  // only: where it is not in memory Read asks `maker`, and checks. Before Seal,
  // or after Open of a file of which that is true.
  void LeaveOutReplica(ArrayMaker maker);
  bool replica_left_out() const;

  // Lets the memory go: from now on everything is read from the file. Does
  // nothing before Seal.
  void DropImage();

  // Writes the elements of `blocks` of one array, which may lie where Map said.
  //
  // RESOURCE_EXHAUSTED: the disk is full. DATA_LOSS: it cannot be written.
  absl::Status Write(int array, IndexRange blocks, const float* elements);

  // Reads the elements of `blocks` of one array.
  //
  // DATA_LOSS: a checksum does not match; the message names the file. Of V that
  // is left out, as its maker.
  absl::Status Read(int array, IndexRange blocks, float* elements) const;

  // True if the disk has failed a read of it: what Read could not give need not
  // be damaged.
  bool disk_has_failed() const { return disk_has_failed_; }

  // CRC-32C of a block of an array, as Write computed it or Open read it.
  uint32_t BlockCrc32c(int array, int64_t block) const {
    return table_[array * range_.block_count() + block -
                  range_.blocks().begin];
  }

  // From now on Write writes into the file too, unsynced: what is in the file
  // outlives the process. Before anything is written.
  void WriteThrough();

  // Writes header and table, unsynced. Requires: WriteThrough was called, and
  // every block of every array was written since.
  absl::Status WriteHeader(const VersionIdentity& identity);

  // Writes header and table and syncs everything. Requires: every block of
  // every array was written. The state is written first, for it is what the
  // next version is made in.
  //
  // DATA_LOSS also: it cannot be synced, and an array is in the file alone, or
  // its image was given away.
  absl::Status Seal(const VersionIdentity& identity);

  // What Seal wrote, or Open found. Not to be called while Seal runs.
  const VersionIdentity& identity() const { return identity_; }
  std::string path() const {
    MutexLock lock(&mutex_);
    return path_;
  }
  // After the file was renamed.
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
  // The image of `array`; null if there is none.
  float* FindImage(int array, VersionImage* keep) const;
  // Fills the table's entries for `blocks` of `array`.
  void NoteCrcs(int array, IndexRange blocks, const float* elements);
  // Writes what only the image has.
  absl::Status WriteImages();
  absl::Status WriteImage(int array);
  // All of `out` from the file; notes it if the disk fails.
  absl::Status ReadBytes(int64_t offset, absl::Span<char> out) const;
  // What the file has, or, if it does without the array, what makes it.
  absl::Status ReadUnchecked(int array, IndexRange blocks,
                             float* elements) const;
  // Into the file alone.
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
  // The file has what the image has.
  bool written_back_ ABSL_GUARDED_BY(mutex_) = false;
  const ShardRange range_;
  const int state_count_;
  const bool writable_;
  mutable std::atomic<bool> disk_has_failed_{false};
  VersionIdentity identity_;
  // CRC-32C of each block: array-major, [(1 + state_count) * block_count].
  std::vector<uint32_t> table_;
};

// A version that can be read. The file outlives its name: a reader may hold it
// while it is released.
struct HeldVersion {
  std::shared_ptr<VersionFile> file;
  int64_t commit_seq = 0;
  Digest128 digest;          // This shard's part.
  Digest128 replica_digest;  // The same of V, in a run with a view.
};

}  // namespace atl::server
