// The manifests of checkpoints (DESIGN.md, "Manifest"): written, checked at a
// start, deleted.
//
// Thread-safe. Calls `find_version` with no lock held.

#ifndef SERVER_STORE_MANIFEST_STORE_H_
#define SERVER_STORE_MANIFEST_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/v1/plan.pb.h"
#include "base/io/file_system.h"
#include "base/layout/layout.h"
#include "base/sync/mutex.h"
#include "server/core/checkpoint_keeper.h"
#include "server/store/shard_names.h"
#include "server/store/version_file.h"

namespace atl::server {

class ManifestStore {
 public:
  using FindVersion = std::function<std::optional<HeldVersion>(
      int32_t fragment, int64_t version)>;

  // All must outlive it. `find_version`: the version, if the shard holds it.
  ManifestStore(FileSystem& fs, const ShardNames& names,
                const RunLayout& layout, int32_t shard, int32_t shard_count,
                FindVersion find_version)
      : fs_(fs),
        names_(names),
        layout_(layout),
        shard_(shard),
        shard_count_(shard_count),
        find_version_(std::move(find_version)) {}

  // Checks the manifests that are there against their versions' files; before
  // any other call. One that is damaged is deleted, and written again by the
  // plan.
  absl::Status Recover();
  // What Recover found.
  const std::vector<ManifestFact>& found() const { return found_; }

  // Writes the manifest of a checkpoint, durably; its versions are persisted.
  // Reads them whole, for their SHA-256.
  //
  // DATA_LOSS: a version is not held any more, or cannot be read.
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::Status Write(int64_t run_epoch, const v1::Pin& pin);
  // Deletes it, durably; OK if there is none.
  absl::Status Drop(const std::string& pin_id);

 private:
  struct Known {
    int64_t run_epoch = 0;
    int64_t commit_seq = 0;
    std::string sha256;  // Of its bytes, hex.
  };

  // What a manifest says, checked against the files that it names.
  //
  // DATA_LOSS: it is not one of this pin.
  absl::StatusOr<ManifestFact> Check(const std::string& pin_id,
                                     absl::string_view text) const;

  FileSystem& fs_;
  const ShardNames& names_;
  const RunLayout& layout_;
  const int32_t shard_;
  const int32_t shard_count_;
  const FindVersion find_version_;
  std::vector<ManifestFact> found_;

  mutable Mutex mutex_;
  std::map<std::string, Known> manifests_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server

#endif  // SERVER_STORE_MANIFEST_STORE_H_
