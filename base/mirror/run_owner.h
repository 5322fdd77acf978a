// Owners of runs in a mirror: the cluster that writes and removes a run's
// checkpoints there. The owner with the highest run_epoch counts; of two with
// the same one, the first. Thread-compatible.

#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "atoll/storage/v1/cluster_object.pb.h"
#include "base/object_store/object_store.h"

namespace atl::mirror {

inline constexpr int kOwnerFormat = 1;

// The newest owner of a run; nullopt: it has none, as in mirrors of earlier
// programs.
//
// DATA_LOSS: it is damaged, or of another format. Others: the store's.
absl::StatusOr<std::optional<storage::v1::RunOwner>> ReadOwner(
    ObjectStore& store, absl::string_view run_uid);

// Makes the caller the owner of its run, unless there is a newer one, and
// returns the owner, with since_run_epoch. Removes all but the two newest.
// `own`: without since_run_epoch. A repeat changes nothing. A caller whose own
// epoch the mirror has collected since finds a newer one.
//
// INVALID_ARGUMENT: `own` is malformed. DATA_LOSS: an owner of this run_epoch or
// a later one cannot be read; the message names it. Others: the store's.
absl::StatusOr<storage::v1::RunOwner> TakeOwnership(
    ObjectStore& store, const storage::v1::RunOwner& own);

// True if `owner`, of TakeOwnership, is the caller.
bool IsOwner(const storage::v1::RunOwner& owner,
             const storage::v1::RunOwner& own);

}  // namespace atl::mirror
