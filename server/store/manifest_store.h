// Writes, checks and deletes the manifests of checkpoints
// (server/store/DESIGN.md, Manifest).
//
// Thread-safe. Calls `find_version` with no lock held.

#pragma once

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
#include "base/sync/mutex.h"
#include "server/core/checkpoint_keeper.h"
#include "server/store/store_context.h"
#include "server/store/version_file.h"

namespace atl::server {

class ManifestStore {
 public:
  using FindVersion = std::function<std::optional<HeldVersion>(
      int32_t fragment, int64_t version)>;

  // `context` must outlive it. `find_version`: the version, if the shard holds
  // it.
  ManifestStore(const StoreContext& context, FindVersion find_version)
      : context_(context), find_version_(std::move(find_version)) {}

  // Checks the manifests against their versions' files. Must come before any
  // other call. Deletes a damaged manifest; it is written again when the plan
  // names its pin. `may_change`: if false, nothing is deleted.
  absl::Status Recover(bool may_change = true);
  // The manifests that Recover found.
  const std::vector<ManifestFact>& found() const { return found_; }

  // Writes the manifest of a checkpoint, durably. Requires: its versions are
  // durable. Reads them whole, for their SHA-256.
  //
  // DATA_LOSS: a version is no longer held, or cannot be read.
  // RESOURCE_EXHAUSTED: the disk is full.
  absl::Status Write(int64_t run_epoch, const v1::Pin& pin);
  // Deletes it, durably; OK if there is none.
  absl::Status Drop(const std::string& pin_id);
  // Deletes those that name a version after `cut`'s, durably. May be called
  // instead of Recover.
  absl::Status DropAfter(
      const google::protobuf::RepeatedPtrField<v1::FragmentVersion>& cut);

 private:
  struct Known {
    int64_t commit_seq = 0;
    std::string sha256;  // Its bytes', hex.
  };

  // Parses a manifest and checks the files that it names.
  //
  // DATA_LOSS: it is not a manifest of this pin.
  absl::StatusOr<ManifestFact> Check(const std::string& pin_id,
                                     absl::string_view text) const;

  const StoreContext& context_;
  const FindVersion find_version_;
  std::vector<ManifestFact> found_;

  mutable Mutex mutex_;
  std::map<std::string, Known> manifests_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace atl::server
