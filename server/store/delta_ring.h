// The newest deltas of a shard: for every fragment those of its last versions,
// as many as take no more bytes together than the full replica.
//
// No data depends on a delta: if one is missing, islands get the full replica
// instead of a chain of deltas.
//
// Thread-safe. Bytes are read and written outside the lock.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/codec/codec.h"
#include "base/io/file_system.h"
#include "base/layout/encoded_layout.h"
#include "base/sync/mutex.h"
#include "server/store/delta_file.h"
#include "server/store/shard_range.h"
#include "server/store/version_image.h"

namespace atl::server {

class DeltaRing {
 public:
  struct Owner {
    std::string run_id;
    int32_t shard = 0;
  };

  // Opens the ring in `directory`, which must exist. Removes damaged files, and
  // files of versions that the ring does not keep. `versions`: the newest
  // persisted version of each fragment. `ranges`: the shard's, by fragment;
  // must outlive the ring. `images`: may be null.
  //
  // Errors as the file system's.
  static absl::StatusOr<std::unique_ptr<DeltaRing>> Open(
      FileSystem& fs, const std::string& directory, const Owner& owner,
      const codec::Codec& codec, const std::vector<ShardRange>& ranges,
      absl::Span<const int64_t> versions, std::shared_ptr<ImagePool> images);

  // Removes all files of a ring, durably: a power cut does not bring them back.
  // No ring may be open in `directory`, which may be missing.
  static absl::Status Clear(FileSystem& fs, const std::string& directory);

  const EncodedLayout& layout(int32_t fragment) const {
    return fragments_[fragment].layout;
  }
  int64_t kept_count(int32_t fragment) const {
    return fragments_[fragment].kept_count;
  }

  // An empty file for the delta of `version`. Older deltas whose files are
  // sealed give up their memory.
  //
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::StatusOr<std::shared_ptr<DeltaFile>> New(int32_t fragment,
                                                 int64_t version);
  // Makes a delta readable; replaces the delta of an earlier attempt.
  void Publish(int32_t fragment, int64_t version,
               std::shared_ptr<DeltaFile> file);
  // `version` is committed: frees the memory of older deltas.
  void Commit(int32_t fragment, int64_t version);
  // Writes the delta under its final name and removes those that became too
  // old. A delta that cannot be written is removed.
  void Persist(int32_t fragment, int64_t version);
  // Removes a delta that is not committed, or that cannot be read.
  void Remove(int32_t fragment, int64_t version);

  // Removes the files that are kept to be written again.
  void DropSpares();

  // The deltas of versions from + 1 to `to`, in order. Empty if one is missing,
  // or if there are more than kept_count.
  std::vector<std::shared_ptr<DeltaFile>> Chain(int32_t fragment, int64_t from,
                                                int64_t to) const;

 private:
  struct Fragment {
    EncodedLayout layout;
    IndexRange blocks;
    int64_t kept_count = 1;
  };
  using Place = std::pair<int32_t, int64_t>;

  DeltaRing(FileSystem& fs, const std::string& directory, const Owner& owner,
            const codec::Codec& codec, const std::vector<ShardRange>& ranges,
            std::shared_ptr<ImagePool> images);

  absl::Status Recover(absl::Span<const int64_t> versions);
  std::string Path(int32_t fragment, int64_t version) const;
  // Keeps the file to be written again, or removes it.
  void Retire(int32_t fragment, std::shared_ptr<DeltaFile> file);
  void DropOldImages(int32_t fragment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  FileSystem& fs_;
  const std::string directory_;
  const Owner owner_;
  const std::shared_ptr<ImagePool> images_;
  std::vector<Fragment> fragments_;

  mutable Mutex mutex_;
  std::map<Place, std::shared_ptr<DeltaFile>> deltas_ ABSL_GUARDED_BY(mutex_);
  std::map<int32_t, int64_t> committed_ ABSL_GUARDED_BY(mutex_);
  std::map<int32_t, std::shared_ptr<DeltaFile>> spares_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
