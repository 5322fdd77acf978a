// The newest deltas of a shard: of every fragment D of its last versions, as
// many as take no more bytes than the view in full.
//
// Nothing depends on a delta: one that is missing, for whatever reason, is a
// chain that cannot be told, and the view in full is told instead.
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

  // Opens the ring in `directory`, which is there, and removes what is damaged
  // or not of a version up to `versions`, the newest persisted ones by
  // fragment. `ranges` are the shard's, by fragment; they must outlive it.
  //
  // Errors as the file system's.
  static absl::StatusOr<std::unique_ptr<DeltaRing>> Open(
      FileSystem& fs, const std::string& directory, const Owner& owner,
      const codec::Codec& codec, const std::vector<ShardRange>& ranges,
      absl::Span<const int64_t> versions, std::shared_ptr<ImagePool> images);

  // How the fragment's deltas are laid out.
  const EncodedLayout& layout(int32_t fragment) const {
    return fragments_[fragment].layout;
  }
  // Versions of D that are kept.
  int64_t kept_count(int32_t fragment) const {
    return fragments_[fragment].kept_count;
  }

  // A file for D of `version` that is being made. Those before it let go of
  // their memory, if their files have them.
  //
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::StatusOr<std::shared_ptr<DeltaFile>> New(int32_t fragment,
                                                 int64_t version);
  // It is made; in the place of what another attempt left.
  void Publish(int32_t fragment, int64_t version,
               std::shared_ptr<DeltaFile> file);
  // `version` is committed: older ones need no memory.
  void Commit(int32_t fragment, int64_t version);
  // Writes it under its name, and removes what the ring has no room for. One
  // that cannot be written is not held any more.
  void Persist(int32_t fragment, int64_t version);
  // Forgets one: of an attempt that is not committed, or that cannot be read.
  void Remove(int32_t fragment, int64_t version);

  // Removes what waits to be written again.
  void DropSpares();

  // D of from + 1 to `to`, in order; empty if one is not held, if there is
  // none, or if V in full takes fewer bytes.
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
  // Removes the file, or keeps it to be written again.
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
