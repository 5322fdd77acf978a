// Completes and removes checkpoints of a mirror. One process does it for a run:
// its coordinator. Thread-compatible.

#pragma once

#include <cstdint>
#include <set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "atoll/storage/v1/cluster_object.pb.h"
#include "atoll/storage/v1/mirror_manifest.pb.h"
#include "base/mirror/mirror_names.h"
#include "base/object_store/object_store.h"

namespace atl::mirror {

// Writes the manifest, once, after a look at each part. OK also if a manifest of
// the same cut and parts exists, whatever its create_time, members and
// pin.suspect: an earlier process wrote it.
//
// DATA_LOSS: CheckManifest refuses it. FAILED_PRECONDITION: a part is missing
// or has another size; upload it again. ALREADY_EXISTS: there is another
// manifest: another process writes this run's checkpoints. Others: the store's.
absl::Status WriteManifest(ObjectStore& store,
                           const storage::v1::MirrorManifest& manifest);

struct Collected {
  int64_t checkpoint_count = 0;  // Manifests that were removed.
  int64_t object_count = 0;      // Parts that were removed.
};

// Removes the checkpoints of `owner`'s run that are not in `kept`, and parts
// that no manifest ever named, with what killed writers left of them. `kept` are
// the places of checkpoints that the run keeps, or is about to complete; places
// after the last of them stay. Removes only objects with names that the mirror
// gives, below the run's own uid; a manifest goes before its parts, so no
// checkpoint is listed that is not whole.
//
// Checkpoints of another cluster, before owner.since_run_epoch, stay, unless a
// kept one of a later epoch has the same cut. So does a checkpoint whose
// manifest is of a newer format. Requires: TakeOwnership returned `owner`, and it
// is the caller.
//
// FAILED_PRECONDITION: the mirror has a checkpoint or an owner of a later epoch:
// the caller is an old copy. Nothing is removed. Others: the store's.
absl::StatusOr<Collected> CollectRun(ObjectStore& store,
                                     const storage::v1::RunOwner& owner,
                                     const std::set<CheckpointPlace>& kept);

}  // namespace atl::mirror
